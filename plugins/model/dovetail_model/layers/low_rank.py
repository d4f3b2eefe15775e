"""A trainable low-rank change of a matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Key

from dovetail_model.layers.kernel import Kernel, product
from dovetail_model.layers.remat import times_both


class LowRank(nnx.Module):
    """A change of low rank: y = s (x A) B, in the dtype of x.

    Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", equation 3, with s = α / rank. `a` is
    [inputs, rank], drawn uniformly from ±1/√inputs, and `b` is [rank, outputs] and zero, so that the change is
    initially zero. Both are float32, with the logical names of the matrix's `axes`.

    In training, each entry of x is set to zero with probability `dropout` and divided by 1 - dropout otherwise. The
    draws depend on the token's key and on this change's `number`, not on what else is in the batch.

    With `groups`, there is a pair of matrices for each group, and `Stack` applies them.

    *Departures*: the paper draws A from a normal distribution; its authors' code and later libraries draw it uniformly.

    >>> change = LowRank(3, 2, 1, axes=(None, None), scale=2.0, rngs=nnx.Rngs(0))
    >>> abs(change(jnp.ones((1, 3))))
    Array([[0., 0.]], dtype=float32)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        rank: int,
        *,
        axes: tuple[str | None, str | None],
        scale: float,
        dropout: float = 0.0,
        number: int = 0,
        groups: int | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        bound, several = inputs**-0.5, () if groups is None else (groups,)
        a = jax.random.uniform(rngs.params(), (*several, inputs, rank), jnp.float32, -bound, bound)
        self.a = nnx.LoRAParam(a, axes=(*(None for _ in several), axes[0], None))
        b = jnp.zeros((*several, rank, outputs), jnp.float32)
        self.b = nnx.LoRAParam(b, axes=(*(None for _ in several), None, axes[1]))
        self.scale, self.dropout, self.number = scale, dropout, number

    def __call__(
        self, x: Float[Array, "row inputs"], keys: Key[Array, "row"] | None = None
    ) -> Float[Array, "row outputs"]:
        """Return y. `keys` are given only in training, one for each token, which is a row of x."""
        return times_both(self.dropped(x, keys), self.a[...], self.b[...]) * self.scale

    def beside(
        self, kernel: Kernel, x: Float[Array, "row inputs"], keys: Key[Array, "row"] | None = None
    ) -> Float[Array, "row outputs"]:
        """Return x W + y, where W is the matrix that is changed."""
        return product(kernel, x) + self(x, keys)

    def dropped(self, x: Float[Array, "row inputs"], keys: Key[Array, "row"] | None) -> Float[Array, "row inputs"]:
        """Return what the change reads of x; without dropout, or without keys, it is x itself."""
        if keys is None or not self.dropout:
            return x
        inputs, kept = x.shape[1], 1.0 - self.dropout
        draws = jax.vmap(lambda key: jax.random.bernoulli(jax.random.fold_in(key, self.number), kept, (inputs,)))(keys)
        return jnp.where(draws, x / jnp.asarray(kept, x.dtype), jnp.zeros((), x.dtype))

    def product(self) -> Float[Array, "*group inputs outputs"]:
        """Return s A B."""
        return self.scale * jnp.matmul(self.a[...], self.b[...])

    def difference(self, kernel: Kernel) -> Float[Array, "*group inputs outputs"]:
        """Return what is to be added to the matrix, in float32, so that it computes what both do."""
        return self.product()
