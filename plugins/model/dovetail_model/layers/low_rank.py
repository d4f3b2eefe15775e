"""A learnt low-rank change of a matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class LowRank(nnx.Module):
    """A change of low rank: y = s (x A) B, in the dtype of x.

    Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", equation 3, with s = α / rank. `a` is
    [inputs, rank], drawn uniformly from ±1/√inputs, and `b` [rank, outputs], zero, so that the change is nothing at
    first; both float32, with the logical names of the matrix's `axes`.

    *Departures*: the paper draws A from a normal distribution; its authors' code, and what came after, do this.

    >>> change = LowRank(3, 2, 1, axes=(None, None), scale=2.0, rngs=nnx.Rngs(0))
    >>> abs(change(jnp.ones((1, 3))))
    Array([[0., 0.]], dtype=float32)
    """

    def __init__(
        self, inputs: int, outputs: int, rank: int, *, axes: tuple[str | None, str | None], scale: float, rngs: nnx.Rngs
    ) -> None:
        bound = inputs**-0.5
        a = jax.random.uniform(rngs.params(), (inputs, rank), jnp.float32, -bound, bound)
        self.a = nnx.LoRAParam(a, axes=(axes[0], None))
        self.b = nnx.LoRAParam(jnp.zeros((rank, outputs), jnp.float32), axes=(None, axes[1]))
        self.scale = scale

    def __call__(self, x: Float[Array, "row inputs"]) -> Float[Array, "row outputs"]:
        """Return y."""
        return (x @ self.a[...].astype(x.dtype)) @ self.b[...].astype(x.dtype) * self.scale

    def product(self) -> Float[Array, "inputs outputs"]:
        """Return s A B."""
        return self.scale * (self.a[...] @ self.b[...])
