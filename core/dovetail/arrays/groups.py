"""Statistics over the completions of one prompt, for any labels in any order and groups of any size."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays.masks import masked


@attrs.frozen
class Groups:
    """Which rows belong to the same group. A row with an empty mask belongs to no group and enters no statistic.

    Every statistic is returned per row, [seq]: each row gets the value of its own group.

    Attributes:
        segments: the group of each row, numbered from zero; rows i and j are of one group where
            `segments[i] == segments[j]`. A row with an empty mask has a number too: ask `live`.
        live: rows with at least one policy token.

    >>> groups = Groups.of(jnp.array([7, -2, 7, 7]), jnp.array([[True], [True], [True], [False]]))
    >>> groups.sizes
    Array([2., 1., 2., 2.], dtype=float32)
    >>> groups.deviations(jnp.array([1.0, 5.0, 2.0, jnp.nan]))
    Array([-0.5,  0. ,  0.5,  0. ], dtype=float32)
    """

    segments: Int[Array, "seq"]
    live: Bool[Array, "seq"]

    @classmethod
    def of(cls, group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]) -> Groups:
        """Build the groups of a batch; rows with equal `group_ids` form one group."""
        _, segments = jnp.unique(group_ids, return_inverse=True, size=group_ids.shape[0])
        return cls(segments, jnp.any(mask, axis=-1))

    @classmethod
    def whole(cls, mask: Bool[Array, "seq token"]) -> Groups:
        """Treat the whole batch as one group."""
        return cls(jnp.zeros(mask.shape[0], jnp.int32), jnp.any(mask, axis=-1))

    @property
    def sizes(self) -> Float[Array, "seq"]:
        """Number of completions with policy tokens in the group; at least 1, so that it is safe to divide by."""
        return jnp.maximum(self.total(jnp.ones(self.live.shape)), 1.0)

    def total(self, x: Float[Array, "seq"]) -> Float[Array, "seq"]:
        """Sum over the group."""
        sums = jax.ops.segment_sum(masked(x, self.live), self.segments, num_segments=self.live.shape[0])
        return sums[self.segments]

    def above_lowest(self, x: Float[Array, "seq"]) -> Float[Array, "seq"]:
        """Distance from the group's lowest value; zero in rows that belong to no group.

        Subtracting the minimum first keeps sums small and often exact. In floating point, the mean of equal numbers
        need not equal them, and 1e6 + 0.3 keeps few digits of the 0.3.
        """
        x = masked(x, self.live)
        lows = jax.ops.segment_min(jnp.where(self.live, x, jnp.inf), self.segments, num_segments=self.live.shape[0])
        return masked(x - jax.lax.stop_gradient(lows[self.segments]), self.live)

    def deviations(self, x: Float[Array, "seq"], weights: Float[Array, "seq"] | None = None) -> Float[Array, "seq"]:
        """Distance from the group's mean, or from its weighted mean.

        Exactly zero in a constant group and in rows that belong to no group. `weights` must be positive in every row
        that belongs to a group.
        """
        above = self.above_lowest(x)
        if weights is None:
            mean = self.total(above) / self.sizes.astype(above.dtype)
        else:
            total = self.total(weights)
            mean = self.total(weights * above) / jnp.where(total > 0, total, 1.0)
        return masked(above - mean, self.live)

    def std(self, x: Float[Array, "seq"]) -> Float[Array, "seq"]:
        """Standard deviation of the group with Bessel's correction; zero in a constant group and in a group of one."""
        squares = self.total(jnp.square(self.deviations(x)))
        variance = squares / jnp.maximum(self.sizes - 1.0, 1.0).astype(squares.dtype)
        # The derivative of sqrt at zero is infinite, and multiplying it by zero gives NaN.
        varies = variance > 0
        return jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1.0)), 0.0)
