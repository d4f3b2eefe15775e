"""Completions of several turns: observations are appended to the cache, and no token is processed twice.

A round draws one turn of all unfinished completions. As their slots share the write position of the cache, shorter
turns and observations leave holes, which are removed when the cache has no room for another round. A turn that ends
before the others keeps its slot until the round is over; if the others move into fewer slots, it stays in the cache
that they have left.

All sizes follow from the shapes of the first call, which compiles every program that a later round may need.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Int, Key

from dovetail.devices.compiled import compiled
from dovetail.progress import SAMPLING, so_far
from dovetail_rollout.decoding.batching import SHORTEST, Batch, Slots, by_rows, whole
from dovetail_rollout.decoding.decode import BLOCK, Drawn, Fixed, nothing, pick, put, resume
from dovetail_rollout.decoding.slots import NONE, Layout
from dovetail_rollout.decoding.stops import Stops

SPARSE = 0.75
"""A full cache is cleared of holes, instead of made longer, if no completion needs more than this share of it."""


@attrs.define(kw_only=True, eq=False)
class Rounds:
    """The completions of one call while they are drawn, turn by turn.

    Attributes:
        batch: the first turns; its limit of tokens is that of a turn.
        max_tokens: the limit of a completion, with all of its turns and observations.
        lengths: the lengths that the cache may have.
        held: the positions of the cache with a token of the completion.
        tokens: the number of tokens so far, observations included.
        last: the last token, which is not in the cache.
        prompts: the keys and values of the prompts.
        left: the slots after the last round: after the first, each holds those that still went on when it was made.
        start: the position at which the tokens of the current turn begin that are not yet in `held`.
        noted: the number of tokens of the current turn that are in `held`.
    """

    batch: Batch
    max_tokens: int
    lengths: tuple[int, ...]
    held: Bool[np.ndarray, "seq position"]
    tokens: Int[np.ndarray, "seq"]
    last: Int[np.ndarray, "seq"]
    noted: Int[np.ndarray, "seq"]
    prompts: Any = None
    left: list[Slots] = attrs.field(factory=list)
    start: int = 0
    stopped: bool = False

    @classmethod
    def of(cls, batch: Batch, max_tokens: int) -> Rounds:
        """Return the rounds of completions of at most `max_tokens` tokens, before the first."""
        seqs, lengths = batch.prompts.keys.size, cache_lengths(max_tokens)
        none = np.zeros(seqs, int)
        held = np.zeros((seqs, lengths[-1]), bool)
        return cls(
            batch=batch,
            max_tokens=max_tokens,
            lengths=lengths,
            held=held,
            tokens=none.copy(),
            last=none.copy(),
            noted=none.copy(),
        )

    def first(self) -> Drawn:
        """Read the prompts and draw the first turns."""
        drawn, self.prompts = self.batch.begin()
        everyone = self.batch.schedule.first(np.arange(len(self.tokens)))
        drawn = self._turn(drawn, self.batch.open(self.prompts, everyone, self.lengths[0]))
        return self._prepare(drawn)

    def next(
        self,
        rows: Sequence[int],
        observed: Sequence[Sequence[int]],
        keys: Key[Array, "seq"],
        refused: Bool[np.ndarray, "seq"],
        stops: Stops | None,
    ) -> Drawn:
        """Read what was observed in some of the last round's completions, and draw their next turns.

        Args:
            rows: the completions that go on.
            observed: the ids between their last turn and the next.
            keys: a key for each completion, also of those that do not go on.
            refused: the completions that fail without being drawn.
            stops: the stop strings of this turn.
        """
        self.batch = attrs.evolve(self.batch, stops=stops)
        said = np.full((len(self.tokens), _in_blocks(self.max_tokens + 1)), -1, np.int32)
        limits = np.ones(len(said), np.int32)
        for row, ids in zip(rows, observed, strict=True):
            said[row, -len(ids) - 1 :] = [self.last[row], *ids]
            self.tokens[row] += len(ids)
            limits[row] = min(self.batch.fixed.max_tokens, self.max_tokens - self.tokens[row])
        ended = np.ones(len(said), bool)
        ended[list(rows)] = False
        drawn = self._nothing(keys, limits, ended | refused, refused)
        width = _in_blocks(max(map(len, observed)) + 1)
        slots = self._packed(self._together(self.left), np.array(rows))
        slots = self._with_room(slots, width, int(limits.max()), np.array(rows))
        return self._turn(*self._resume(drawn, slots, said, width))

    def _turn(self, drawn: Drawn, slots: Slots) -> Drawn:
        """Draw until every turn has ended."""
        self.start, self.noted[:], self.left = slots.filled, 0, []
        while True:
            drawn, slots = self.batch.extend(drawn, slots)
            drawn, going = self.batch.going(drawn, slots.layout.held)
            so_far(SAMPLING, len(self.tokens) - len(going), len(self.tokens))
            if not len(going):
                break
            for layout in self.batch.schedule.moves(slots.layout, going, NONE):
                self.left.append(slots)
                slots = self.batch.move(self.prompts, slots, layout, slots.filled, slots.length)
            if slots.filled == slots.length:
                self._note(drawn)
                slots = self._longer_or_denser(slots)
        self.left.append(slots)
        self._note(drawn)
        lengths = np.asarray(drawn.lengths)
        self.tokens += lengths
        ends = np.asarray(drawn.tokens)[np.arange(len(lengths)), np.maximum(lengths - 1, 0)]
        self.last = np.where(lengths > 0, ends, self.last)
        self.stopped = self.batch.stops is not None and bool(self.batch.stops.found.any())
        return drawn

    def _note(self, drawn: Drawn) -> None:
        """Note the positions of the tokens drawn since the last note, all but the last token of each completion."""
        stored = np.maximum(np.asarray(drawn.lengths) - 1, self.noted)
        at = np.arange(self.held.shape[1]) - self.start
        self.held |= (at >= 0) & (at < (stored - self.noted)[:, None])
        self.noted = stored

    def _together(self, slots: Sequence[Slots]) -> Slots:
        """Return the first of these slots with all completions, as they are in the last of the slots that hold them."""
        *wider, narrow = slots
        for each in reversed(wider):
            wide = self._grown(each, narrow.length)
            before = wide.layout.seqs.size
            found = wide.layout.find(narrow.layout.seqs)
            self.batch.note("put", narrow.layout.seqs.size, before, wide.length)
            cache = _put(wide.cache, narrow.cache, before, np.where(found < 0, before, found))
            narrow = attrs.evolve(wide, cache=cache, filled=max(wide.filled, narrow.filled))
        return narrow

    def _packed(self, slots: Slots, rows: Int[np.ndarray, "seq"]) -> Slots:
        """Move the completions that go on into fewer slots, if they fit."""
        for layout in self.batch.schedule.moves(slots.layout, rows, NONE):
            slots = self.batch.move(self.prompts, slots, layout, slots.filled, slots.length)
        return slots

    def _with_room(self, slots: Slots, width: int, limit: int, rows: Int[np.ndarray, "seq"]) -> Slots:
        """Return slots with room for an observation, without holes if the turn after it might not fit as well.

        Tokens behind a stop string are in the cache, and are removed from it too.
        """
        others = np.ones(len(self.held), bool)
        others[rows] = False
        self.held[others] = False
        if self.stopped or slots.filled + width + limit - 1 > slots.length:
            slots = self._denser(slots)
        return self._grown(slots, slots.filled + width)

    def _longer_or_denser(self, slots: Slots) -> Slots:
        """Return slots with room for another token."""
        most = self.held[slots.layout.held].sum(axis=1).max()
        sparse = slots.length == self.lengths[-1] or most <= SPARSE * slots.length
        slots = self._denser(slots) if sparse else self._grown(slots, slots.length + 1)
        self.start = slots.filled
        return slots

    def _denser(self, slots: Slots) -> Slots:
        """Remove the holes, and what does not belong to a completion any more."""
        seqs = slots.layout.seqs.ravel()
        held = self.held[seqs, : slots.length] & (seqs >= 0)[:, None]
        counts = held.sum(axis=1)
        there = np.arange(slots.length) < counts[:, None]
        places = np.where(there, np.argsort(~held, axis=1, kind="stable"), -1).astype(np.int32)
        filled = int(counts.max())
        self.held[seqs[seqs >= 0]] = False
        self.held[seqs[seqs >= 0], : slots.length] = there[seqs >= 0]
        return attrs.evolve(slots, cache=self._pick(slots, places, filled), filled=filled)

    def _pick(self, slots: Slots, places: Int[np.ndarray, "slot position"], filled: int) -> Any:
        self.batch.note("pick", *places.shape)
        return _pick(slots.cache, len(places), places, np.int32(filled), self.batch.length_axes)

    def _grown(self, slots: Slots, length: int) -> Slots:
        """Return slots with a cache of at least this length."""
        for longer in self.lengths:
            if slots.length < min(longer, length):
                slots = self.batch.move(self.prompts, slots, slots.layout, slots.filled, longer)
        return slots

    def _resume(self, drawn: Drawn, slots: Slots, said: Any, width: int) -> tuple[Drawn, Slots]:
        """Read the last `width` positions of what was said to each completion, and draw a token after them."""
        batch, seqs = self.batch, slots.layout.seqs.ravel()
        batch.note(*self._resumption(slots.layout, slots.length))
        said = np.where((seqs >= 0)[:, None], said[seqs], -1)
        drawn, cache = _resume(
            batch.graphdef,
            batch.weights,
            drawn,
            slots.prefix,
            slots.cache,
            slots.layout.seqs_or(len(self.tokens)),
            said,
            np.int32(width // BLOCK),
            batch.numbers,
            batch.fixed,
        )
        at = np.zeros((len(seqs), self.held.shape[1]), bool)
        at[:, slots.filled : slots.filled + width] = said[:, said.shape[1] - width :] >= 0
        self.held[seqs[seqs >= 0]] |= at[seqs >= 0]
        return drawn, attrs.evolve(slots, cache=cache, filled=slots.filled + width)

    def _resumption(self, layout: Layout, length: int) -> tuple[Any, ...]:
        return ("resume", *layout.shape, length, self.batch.prompts.tokens.shape[1], self.max_tokens, self.batch.static)

    def _nothing(self, keys: Any, limits: Any, ended: Any, failed: Any) -> Drawn:
        self.batch.note("nothing", len(limits), self.batch.fixed)
        return _nothing(keys, limits, ended, failed, self.batch.fixed)

    def _prepare(self, drawn: Drawn) -> Drawn:
        """Run once through all programs of later rounds, with nothing in the slots."""
        schedule, seqs = self.batch.schedule, len(self.tokens)
        layouts = [schedule.first(NONE)]
        layouts += schedule.moves(layouts[0], NONE, NONE)
        if self._resumption(layouts[-1], self.lengths[-1]) in self.batch.compiled:
            return drawn
        none = np.zeros(seqs, bool)
        self._nothing(self.batch.prompts.keys.reshape(-1), np.ones(seqs, np.int32), ~none, none)
        said = np.full((seqs, _in_blocks(self.max_tokens + 1)), -1, np.int32)
        slots = self.batch.open(self.prompts, layouts[0], self.lengths[0])
        for length in self.lengths:
            slots = self._grown(slots, length)
            chain = [slots]
            for layout in layouts[1:]:
                chain.append(self.batch.move(self.prompts, chain[-1], layout, 0, length))
            for each in chain:
                self._grown(each, length + 1)
                drawn, tried = self._resume(drawn, self._denser(each), said, BLOCK)
                drawn, _ = self.batch.extend(drawn, tried)
            slots = self._together(chain)
        return drawn


def cache_lengths(max_tokens: int) -> tuple[int, ...]:
    """Return the lengths that a cache may have for completions of so many tokens.

    The longest has room for any completion without holes beside any observation.

    >>> cache_lengths(40), cache_lengths(300)
    ((88,), (128, 256, 604))
    """
    most, length, lengths = max_tokens + _in_blocks(max_tokens + 1), SHORTEST, []
    while 2 * length <= most:
        lengths.append(length)
        length *= 2
    return (*lengths, most)


def _in_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK) * BLOCK


@compiled(static=(4,))
def _nothing(
    keys: Key[Array, "seq"],
    limits: Int[Array, "seq"],
    ended: Bool[Array, "seq"],
    failed: Bool[Array, "seq"],
    fixed: Fixed,
) -> Drawn:
    return whole(nothing(keys, fixed)._replace(limits=limits, ended=ended, failed=failed))


@compiled(static=(0, 9), donate=(2, 4))
def _resume(
    graphdef: Any,
    weights: Any,
    drawn: Drawn,
    prefix: Any,
    cache: Any,
    seqs: Int[Array, "slot"],
    said: Int[Array, "slot position"],
    blocks: Int[Array, ""],
    numbers: Any,
    fixed: Fixed,
) -> tuple[Drawn, Any]:
    model = nnx.merge(graphdef, *weights)
    drawn, cache = resume(model, drawn, prefix, cache, seqs, said, blocks, numbers, fixed)
    return whole(drawn), by_rows(cache)


@functools.partial(jax.jit, static_argnums=(1, 4))
def _pick(cache: Any, before: int, places: Any, filled: Any, axes: tuple[int | None, ...]) -> Any:
    return by_rows(pick(cache, before, places, filled, axes))


@functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
def _put(wide: Any, narrow: Any, before: int, slots: Int[Array, "slot"]) -> Any:
    return by_rows(put(wide, narrow, before, slots))
