"""The gated feed-forward layer."""

from __future__ import annotations

import jax
from flax import nnx
from jaxtyping import Array, Float

from dovetail_model.layers.linear import Linear


class SwiGLU(nnx.Module):
    """A gated feed-forward layer: y = (silu(x W_gate) ⊙ x W_up) W_down.

    Shazeer 2020, "GLU Variants Improve Transformer", equation 6. `std` is the standard deviation of the initial weights
    and `out_std` that of `down`, which writes to the residual stream.

    >>> layer = SwiGLU(4, 8, std=0.02, out_std=0.01, param_dtype="float32", rngs=nnx.Rngs(0))
    >>> layer(jax.numpy.ones((3, 4))).shape
    (3, 4)
    """

    def __init__(self, width: int, ffn: int, *, std: float, out_std: float, param_dtype: str, rngs: nnx.Rngs) -> None:
        self.gate = Linear(width, ffn, std=std, param_dtype=param_dtype, rngs=rngs)
        self.up = Linear(width, ffn, std=std, param_dtype=param_dtype, rngs=rngs)
        self.down = Linear(ffn, width, std=out_std, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "row width"]) -> Float[Array, "row width"]:
        """Return the layer's contribution to the residual stream."""
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))
