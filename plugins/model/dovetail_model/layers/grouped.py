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


class Blocks(NamedTuple):
    """Rows that are multiplied together; the last block of a group may reach into the next groups.

    Attributes:
        number: how many there are; the entries below after so many mean nothing.
        groups: the group of each.
        starts: its first row.
        stops: the end of its group.
        rows: its rows.
    """

    number: Int[Array, ""]
    groups: Int[Array, "block"]
    starts: Int[Array, "block"]
    stops: Int[Array, "block"]
    rows: int

    @classmethod
    def of(cls, x: Float[Array, "row inputs"], sizes: Int[Array, "group"]) -> Blocks:
        """Return blocks of about the mean size of a group, in the order of the rows."""
        mean = max(len(x) // len(sizes), 1)
        rows = min(max(1 << (mean.bit_length() - 1), SMALLEST), LARGEST)
        counts = -(-sizes // rows)
        ends, stops = jnp.cumsum(counts), jnp.cumsum(sizes)
        index = jnp.arange(len(x) // rows + len(sizes))
        groups = jnp.searchsorted(ends, index, side="right", method="compare_all").clip(max=len(sizes) - 1)
        starts = (stops - sizes)[groups] + (index - (ends - counts)[groups]) * rows
        return cls(ends[-1], groups, starts, stops[groups], rows)

    def padded(self, x: Float[Array, "row width"]) -> Float[Array, "more width"]:
        """Return the rows with zeros after them, into which the last block may reach."""
        return jnp.pad(x, ((0, self.rows), (0, 0)))

    def read(self, padded: Float[Array, "more width"], index: Int[Array, ""]) -> Float[Array, "rows width"]:
        """Return the rows of a block in float32."""
        return jax.lax.dynamic_slice_in_dim(padded, self.starts[index], self.rows).astype(jnp.float32)


@jax.custom_vjp
def _in_blocks(
    x: Float[Array, "row inputs"], kernels: Float[Array, "group inputs outputs"], sizes: Int[Array, "group"]
) -> Float[Array, "row outputs"]:
    return _products("ri,io->ro", x, kernels, sizes, kernels.shape[2])


def _products(formula: str, x: Array, kernels: Array, sizes: Array, outputs: int) -> Array:
    blocks = Blocks.of(x, sizes)
    padded = blocks.padded(x)

    def add(index: Array, y: Array) -> Array:
        kernel = kernels[blocks.groups[index]].astype(jnp.float32)
        product = jnp.einsum(formula, blocks.read(padded, index), kernel).astype(y.dtype)
        # What a block writes beyond its group is overwritten by the next blocks, which come later.
        return jax.lax.dynamic_update_slice_in_dim(y, product, blocks.starts[index], 0)

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
        is_own = blocks.starts[index] + jnp.arange(blocks.rows) < blocks.stops[index]
        own = jnp.where(is_own[:, None], blocks.read(inputs, index), 0.0)
        return total.at[blocks.groups[index]].add(own.T @ blocks.read(outputs, index))

    return jax.lax.fori_loop(0, blocks.number, add, jnp.zeros(kernels.shape, jnp.float32)).astype(kernels.dtype)


_in_blocks.defvjp(_forward, _backward)
