"""Products of rows with the matrix of their group."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

SMALLEST, LARGEST = 8, 128
"""Rows of a block on CPUs: fewer waste the product, more waste rows at the end of each group."""


def grouped_dot(
    x: Float[Array, "row inputs"], kernels: Float[Array, "group inputs outputs"], sizes: Int[Array, "group"]
) -> Float[Array, "row outputs"]:
    """Return yᵢ = xᵢ W₉₍ᵢ₎ in the type of x, where g(i) is the group of row i.

    The first `sizes[0]` rows belong to group 0, the next `sizes[1]` to group 1, and so on; the sizes sum to the number
    of rows, and no row is dropped whatever the sizes are. This is `jax.lax.ragged_dot`. On CPUs that function
    multiplies every row with every matrix, so there the rows are multiplied in blocks, each with the matrix of its
    group only.

    >>> x = jnp.ones((3, 2))
    >>> grouped_dot(x, jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]]), jnp.array([1, 2])).ravel()
    Array([ 2., 10., 10.], dtype=float32)
    """
    if jax.default_backend() == "cpu":
        return _in_blocks(x, kernels, sizes)
    return jax.lax.ragged_dot(x, kernels.astype(x.dtype), sizes)


class Block(NamedTuple):
    """Rows that are multiplied together: their group, the first of them, and the end of the group."""

    group: Int[Array, ""]
    start: Int[Array, ""]
    stop: Int[Array, ""]


class Blocks(NamedTuple):
    """The blocks of all groups in order; the last block of a group may reach into the next groups."""

    sizes: Int[Array, "group"]
    rows: int

    @classmethod
    def of(cls, x: Float[Array, "row inputs"], sizes: Int[Array, "group"]) -> Blocks:
        """Return blocks of about the mean size of a group."""
        mean = max(len(x) // len(sizes), 1)
        return cls(sizes, min(max(1 << (mean.bit_length() - 1), SMALLEST), LARGEST))

    @property
    def _ends(self) -> Int[Array, "group"]:
        return jnp.cumsum(-(-self.sizes // self.rows))

    @property
    def number(self) -> Int[Array, ""]:
        """How many there are."""
        return self._ends[-1]

    def __getitem__(self, index: Int[Array, ""]) -> Block:
        """Return one of them."""
        ends, stops = self._ends, jnp.cumsum(self.sizes)
        group = jnp.searchsorted(ends, index, side="right").astype(jnp.int32)
        left = ends[group] - index  # blocks of the group from this one on
        first = stops[group] - self.sizes[group]
        count = -(-self.sizes[group] // self.rows)
        return Block(group, first + (count - left) * self.rows, stops[group])

    def padded(self, x: Float[Array, "row width"]) -> Float[Array, "more width"]:
        """Return the rows with zeros after them, into which the last block may reach."""
        return jnp.pad(x, ((0, self.rows), (0, 0)))

    def read(self, padded: Float[Array, "more width"], block: Block) -> Float[Array, "rows width"]:
        """Return the rows of a block in float32."""
        return jax.lax.dynamic_slice_in_dim(padded, block.start, self.rows).astype(jnp.float32)


@jax.custom_vjp
def _in_blocks(
    x: Float[Array, "row inputs"], kernels: Float[Array, "group inputs outputs"], sizes: Int[Array, "group"]
) -> Float[Array, "row outputs"]:
    return _products("ri,io->ro", x, kernels, sizes, kernels.shape[2])


def _products(formula: str, x: Array, kernels: Array, sizes: Array, outputs: int) -> Array:
    blocks = Blocks.of(x, sizes)
    padded = blocks.padded(x)

    def add(index: Array, y: Array) -> Array:
        block = blocks[index]
        own = kernels[block.group].astype(jnp.float32)
        product = jnp.einsum(formula, blocks.read(padded, block), own).astype(y.dtype)
        # What a block writes beyond its group is overwritten by the next blocks, which come later.
        return jax.lax.dynamic_update_slice_in_dim(y, product, block.start, 0)

    return jax.lax.fori_loop(0, blocks.number, add, jnp.zeros((len(padded), outputs), x.dtype))[: len(x)]


def _forward(x: Array, kernels: Array, sizes: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return _in_blocks(x, kernels, sizes), (x, kernels, sizes)


def _backward(kept: tuple[Array, Array, Array], upstream: Array) -> tuple[Array, Array, None]:
    x, kernels, sizes = kept
    of_x = _products("ro,io->ri", upstream, kernels, sizes, kernels.shape[1])
    return of_x.astype(x.dtype), _of_kernels(x, upstream, sizes, kernels), None


def _of_kernels(x: Array, upstream: Array, sizes: Array, kernels: Array) -> Array:
    """Return the gradient Σ xᵢᵀ dᵢ over the rows of each group."""
    blocks = Blocks.of(x, sizes)
    inputs, outputs = blocks.padded(x), blocks.padded(upstream)

    def add(index: Array, total: Array) -> Array:
        block = blocks[index]
        is_own = block.start + jnp.arange(blocks.rows) < block.stop
        own = jnp.where(is_own[:, None], blocks.read(inputs, block), 0.0)
        return total.at[block.group].add(own.T @ blocks.read(outputs, block))

    return jax.lax.fori_loop(0, blocks.number, add, jnp.zeros(kernels.shape, jnp.float32)).astype(kernels.dtype)


_in_blocks.defvjp(_forward, _backward)
