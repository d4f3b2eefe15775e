"""Joins segments into one row of keys in the order of their positions, as fused kernels require."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_model.attention.sight import HIDDEN, Segment


class Joined(NamedTuple):
    """Keys and values of all segments, a shared one repeated for each row that it serves."""

    keys: Float[Array, "seq key kv_head head_dim"]
    values: Float[Array, "seq key kv_head head_dim"]
    at: Int[Array, "seq key"]

    @classmethod
    def of(cls, segments: tuple[Segment, ...], seq: int) -> Joined:
        """Join segments; those that come first also hold the earlier positions."""

        def each(x: Array) -> Array:
            return jnp.repeat(x, seq // len(x), axis=0)

        def rows(x: Float[Array, "batch key head_dim"], segment: Segment) -> Float[Array, "seq key kv_head head_dim"]:
            return each(x.reshape(segment.rows, segment.kv_heads, *x.shape[1:])).swapaxes(1, 2)

        return cls(
            jnp.concatenate([rows(segment.keys, segment) for segment in segments], axis=1),
            jnp.concatenate([rows(segment.values, segment) for segment in segments], axis=1),
            jnp.concatenate([each(segment.sight.keys.at) for segment in segments], axis=1),
        )

    def ordered(self, *, hidden_first: bool) -> Joined:
        """Return a copy with the visible keys sorted by position, and the others before or after them."""
        order = jnp.argsort(jnp.where(self.at == HIDDEN, -1, self.at) if hidden_first else self.at, axis=1, stable=True)
        wide = order[:, :, None, None]
        return Joined(
            jnp.take_along_axis(self.keys, wide, axis=1),
            jnp.take_along_axis(self.values, wide, axis=1),
            jnp.take_along_axis(self.at, order, axis=1),
        )

    def padded(self, multiple: int) -> Joined:
        """Return a copy with hidden keys appended, up to a multiple of some number."""
        more = -self.at.shape[1] % multiple
        wide = ((0, 0), (0, more), (0, 0), (0, 0))
        at = jnp.pad(self.at, ((0, 0), (0, more)), constant_values=HIDDEN)
        return Joined(jnp.pad(self.keys, wide), jnp.pad(self.values, wide), at)

    def lengths(self) -> Int[Array, "seq"]:
        """Return the number of visible keys of each row."""
        return jnp.sum(self.at < HIDDEN, axis=1, dtype=jnp.int32)
