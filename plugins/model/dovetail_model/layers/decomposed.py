"""A trainable low-rank change of a matrix, beside which the norms of the matrix are trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Key

from dovetail_model.layers.kernel import Kernel, dense, product, squared_norms
from dovetail_model.layers.low_rank import LowRank


class Decomposed(LowRank):
    """A change of low rank for the direction of each output's weights, and another one for their norm.

        y = x W'          W' = m ⊙ V / ‖V‖          V = W + s A B          m = ‖W‖ + Δ

    Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", equation 5. ‖·‖ is the norm over the inputs of each
    output, so m, the magnitude, is [outputs]. ‖V‖ is a constant for the gradient (section 4.3, equation 11).

    What differs from `LowRank`:

    1. Δ is trained too: `growth`, [outputs], float32, initially zero.
    2. What W contributes is scaled too. With dropout only what the adapter adds to x W reads the dropped x, x̃, as in
       PEFT: y = x W + (g - 1) ⊙ x̃ W + g ⊙ s x̃ A B, where g = m / ‖V‖.

    *Departures*: the paper trains m itself. The gradients are the same, but Δ = 0 is the base bit by bit, and weight
    decay draws m towards ‖W‖ instead of zero. An output whose weights are all zero stays zero instead of being NaN.

    >>> change = Decomposed(2, 2, 1, axes=(None, None), scale=2.0, rngs=nnx.Rngs(0))
    >>> change.growth[...] += jnp.array([5.0, 0.0])
    >>> change.beside(nnx.Param(jnp.array([[3.0, 1.0], [4.0, 1.0]])), jnp.ones((1, 2)))
    Array([[14.,  2.]], dtype=float32)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        rank: int,
        *,
        axes: tuple[str | None, str | None],
        rngs: nnx.Rngs,
        **others: Any,
    ) -> None:
        super().__init__(inputs, outputs, rank, axes=axes, rngs=rngs, **others)
        self.growth = nnx.LoRAParam(jnp.zeros(outputs, jnp.float32), axes=axes[1:])

    def beside(
        self, kernel: Kernel, x: Float[Array, "row inputs"], keys: Key[Array, "row"] | None = None
    ) -> Float[Array, "row outputs"]:
        """Return y."""
        gain, read = self._gain(kernel, x.dtype), self.dropped(x, keys)
        y = product(kernel, x)
        if read is x:
            return _scaled(y + self(x), gain)
        return y + _scaled(product(kernel, read), gain - 1) + _scaled(self(read), gain)

    def difference(self, kernel: Kernel) -> Float[Array, "inputs outputs"]:
        """Return W' - W in float32."""
        gain = self._gain(kernel, jnp.float32)[None, :]
        return (gain - 1) * jnp.asarray(dense(kernel)).astype(jnp.float32) + gain * self.product()

    def magnitude(self, kernel: Kernel) -> Float[Array, "outputs"]:
        """Return m."""
        return jnp.sqrt(squared_norms(kernel)) + self.growth[...]

    def set_magnitude(self, kernel: Kernel, magnitude: Float[Array, "outputs"]) -> None:
        """Let m be another one, of a matrix that is W from now on."""
        self.growth[...] = magnitude - jnp.sqrt(squared_norms(kernel))

    def _gain(self, kernel: Kernel, dtype: Any) -> Float[Array, "outputs"]:
        """Return g = m / ‖V‖, which is exactly 1 at first.

        ‖V‖² = ‖W‖² + Σᵣ (2 AᵀW + s AᵀA B) s B, so V is never stored. `dtype` is the type of AᵀW.
        """
        # copies in host memory are NumPy's, which would compute in another order
        a, b = (jax.lax.stop_gradient(jnp.asarray(each[...])) for each in (self.a, self.b))
        of_base = squared_norms(kernel)
        both = product(kernel, a.T.astype(dtype)).astype(jnp.float32)
        more = self.scale * jnp.sum((2 * both + self.scale * (a.T @ a) @ b) * b, axis=0)
        before, norm = jnp.sqrt(of_base), jnp.sqrt(jnp.maximum(of_base + more, 0))
        # a quotient instead of the difference of two nearly equal norms, which would be rounded
        longer = more / jnp.where(norm + before > 0, norm + before, 1)
        return 1 + (self.growth[...] - longer) / jnp.where(norm > 0, norm, 1)


def _scaled(y: Float[Array, "row outputs"], gain: Float[Array, "outputs"]) -> Float[Array, "row outputs"]:
    """Return y with each output scaled, in its type; in 16 bits a gain near 1 would be rounded to 1."""
    return (y.astype(jnp.float32) * gain[None, :]).astype(y.dtype)
