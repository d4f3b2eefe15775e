"""Root-mean-square normalisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


def rms_norm(
    x: Float[Array, "*batch width"], scale: Float[Array, "width"], *, epsilon: float
) -> Float[Array, "*batch width"]:
    """Divide by the root mean square: y = x / √(mean(x²) + ε) · scale.

    Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4. The arithmetic is float32; the result
    has the dtype of `x`.

    >>> rms_norm(jnp.array([2.0, -2.0]), jnp.ones(2), epsilon=0.0)
    Array([ 1., -1.], dtype=float32)
    """
    wide = x.astype(jnp.float32)
    normal = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    return (normal * jnp.expand_dims(scale.astype(jnp.float32), range(x.ndim - 1))).astype(x.dtype)


class RMSNorm(nnx.Module):
    """`rms_norm` with a learned scale that starts at one.

    The stored parameter is the scale minus `offset`, under the logical name `axis`.
    """

    def __init__(self, width: int, *, axis: str | None, epsilon: float, offset: float, param_dtype: str) -> None:
        self.scale = nnx.Param(jnp.full(width, 1.0 - offset, param_dtype), axes=(axis,))
        self.width = width
        self.epsilon = epsilon
        self.offset = offset

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        """Return the normalised rows."""
        # The offset is added in float32, because rounding 1 + w to bfloat16 would lose most of w.
        return rms_norm(x, self.scale[...].astype(jnp.float32) + self.offset, epsilon=self.epsilon)
