"""Sums and positions per turn, for episodes in which the policy writes several times."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays.masks import masked

ByTurn = Float[Array, "seq turn"]
Tokens = Float[Array, "seq token"]


@attrs.frozen
class Turns:
    """Which policy tokens make up each turn of an episode. A token outside the mask belongs to no turn.

    Per-turn arrays, [seq, turn], have one column for each possible turn number. A column is zero in an episode that
    has no such turn, or none of whose policy tokens are left in the mask.

    Attributes:
        numbers: the turn of each policy token, counted from zero; zero elsewhere.
        mask: policy tokens.
        count: the number of columns of a per-turn array.

    >>> turns = Turns.of(jnp.array([[0, 0, 0, 1, 1]]), jnp.array([[True, True, False, True, False]]), count=3)
    >>> turns.total(jnp.array([[1.0, 2.0, jnp.nan, 4.0, jnp.nan]]))
    Array([[3., 4., 0.]], dtype=float32)
    >>> turns.per_token(jnp.array([[5.0, 6.0, 7.0]]))
    Array([[5., 5., 0., 6., 0.]], dtype=float32)
    """

    numbers: Int[Array, "seq token"]
    mask: Bool[Array, "seq token"]
    count: int

    @classmethod
    def of(cls, turns: Int[Array, "seq token"], mask: Bool[Array, "seq token"], count: int | None = None) -> Turns:
        """Build the turns of a batch. `count` defaults to the number of tokens, since each turn has at least one."""
        count = turns.shape[1] if count is None else count
        return cls(jnp.clip(jnp.where(mask, turns, 0), 0, count - 1), mask, count)

    @property
    def live(self) -> Bool[Array, "seq turn"]:
        """Turns with at least one policy token."""
        return self.lengths > 0

    @property
    def lengths(self) -> ByTurn:
        """The number of policy tokens in each turn."""
        return self.total(jnp.ones(self.mask.shape))

    @property
    def starts(self) -> Bool[Array, "seq token"]:
        """The first policy token of each turn."""
        return self.mask & (self._places == self._of_own(self._first))

    @property
    def ends(self) -> Bool[Array, "seq token"]:
        """The last policy token of each turn."""
        return self.mask & (self._places == self._of_own(self._last))

    def total(self, x: Tokens) -> ByTurn:
        """Sum over the policy tokens of each turn."""
        return jax.vmap(self._sums)(masked(x, self.mask), self.numbers)

    def mean(self, x: Tokens) -> ByTurn:
        """Mean over the policy tokens of each turn."""
        totals = self.total(x)
        return totals / jnp.maximum(self.lengths, 1.0).astype(totals.dtype)

    def first(self, x: Tokens) -> ByTurn:
        """The value at the first policy token of each turn."""
        return self.total(jnp.where(self.starts, x, 0.0))

    def per_token(self, by_turn: ByTurn) -> Tokens:
        """Broadcast each turn's value to its policy tokens; zero everywhere else."""
        return jnp.where(self.mask, self._of_own(by_turn), 0.0)

    def at_ends(self, by_turn: ByTurn) -> Tokens:
        """Put each turn's value on its last policy token; zero everywhere else."""
        return jnp.where(self.ends, self._of_own(by_turn), 0.0)

    @property
    def _places(self) -> Int[Array, "1 token"]:
        return jnp.arange(self.mask.shape[1])[None, :]

    @property
    def _first(self) -> Int[Array, "seq turn"]:
        width = self.mask.shape[1]
        return jax.vmap(lambda x, ids: jax.ops.segment_min(x, ids, num_segments=self.count))(
            jnp.where(self.mask, self._places, width), self.numbers
        )

    @property
    def _last(self) -> Int[Array, "seq turn"]:
        return jax.vmap(lambda x, ids: jax.ops.segment_max(x, ids, num_segments=self.count))(
            jnp.where(self.mask, self._places, -1), self.numbers
        )

    def _sums(self, row: Float[Array, "token"], numbers: Int[Array, "token"]) -> Float[Array, "turn"]:
        return jax.ops.segment_sum(row, numbers, num_segments=self.count)

    def _of_own(self, by_turn: Array) -> Array:
        return jnp.take_along_axis(by_turn, self.numbers, axis=1)


def carried(x: Float[Array, "seq step"], mask: Bool[Array, "seq step"]) -> Float[Array, "seq step"]:
    """Move values outside the mask to the nearest position inside it: the last one before, else the first one after.

    The sum of a row is preserved, and so a return from any step on still includes the rewards that followed it. A row
    with an empty mask becomes zero.

    >>> carried(jnp.array([[1.0, 2.0, 4.0, 8.0]]), jnp.array([[False, True, False, True]]))
    Array([[0., 7., 0., 8.]], dtype=float32)
    """
    sums = jax.vmap(lambda row, ids: jax.ops.segment_sum(row, ids, num_segments=mask.shape[1]))(x, latest(mask))
    return masked(sums, mask)


def latest(mask: Bool[Array, "seq step"]) -> Int[Array, "seq step"]:
    """Return, for each position, the index of the last position up to it that is inside the mask.

    Where there is none, it is the index of the first position inside the mask; zero in a row with an empty mask.

    >>> latest(jnp.array([[False, True, False, True]]))
    Array([[1, 1, 1, 3]], dtype=int32)
    """
    before = jax.lax.cummax(jnp.where(mask, jnp.arange(mask.shape[1])[None, :], -1), axis=1)
    return jnp.where(before >= 0, before, jnp.argmax(mask, axis=1)[:, None])
