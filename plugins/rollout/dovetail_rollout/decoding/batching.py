"""One call of the vanilla engine: compiled steps, and the assignment of completions to slots between them."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Int, Key

from dovetail.devices.compiled import compiled
from dovetail.devices.mesh import EACH
from dovetail.progress import SAMPLING, so_far
from dovetail.protocols import Weights
from dovetail_rollout.decoding.decode import Drawn, Fixed, begin, extend, move, take_rows
from dovetail_rollout.decoding.sampling import Numbers
from dovetail_rollout.decoding.slots import NONE, Layout, Schedule
from dovetail_rollout.decoding.stops import Stops

SHORTEST = 128
"""Positions of the shortest cache; it is doubled when it is full."""

SLACK = 32
"""Positions beyond what the longest completion needs if lengths differ, so that the cache is rarely moved."""


class Prompts(NamedTuple):
    """Prompts padded on the left, a key for each completion, and which completions must not be drawn."""

    tokens: Int[Array, "prompt position"]
    mask: Bool[Array, "prompt position"]
    keys: Key[Array, "prompt sample"]
    refused: Bool[Array, "seq"]


@attrs.frozen(kw_only=True)
class Slots:
    """The slots at one moment: in each, `filled` of `length` positions hold keys and values of its own tokens."""

    layout: Layout
    prefix: Any
    cache: Any
    filled: int
    length: int


@attrs.frozen(kw_only=True)
class Batch:
    """The completions of one call while they are drawn.

    Attributes:
        schedule: which completion is decoded when.
        stops: stop strings, which are checked on the host now and then.
        compiled: the shapes compiled so far, to which those of this call are added.
    """

    graphdef: Any
    weights: Weights
    numbers: Numbers
    fixed: Fixed
    cache_dtype: str | None
    length_axes: tuple[int | None, ...]
    schedule: Schedule
    stops: Stops | None
    prompts: Prompts
    compiled: set[tuple[Any, ...]]

    def run(self) -> Drawn:
        """Draw all completions except the refused ones.

        The first call also compiles what later ones may need for fewer slots and longer caches, so that no step waits
        for it.
        """
        drawn, prompts = self._draw()
        return self._prepare(drawn, prompts)

    def _draw(self) -> tuple[Drawn, Any]:
        """Return the completions and the keys and values of the prompts."""
        drawn, prompts = self.begin()
        total = self.prompts.keys.size
        drawn, waiting = self.going(drawn, np.arange(total))
        if not len(waiting):
            return drawn, prompts
        layout, going = self.schedule.first(waiting), np.array([], int)
        slots = self.open(prompts, layout, self._cache_length(0))
        waiting = np.setdiff1d(waiting, layout.held)
        while True:
            drawn, slots = self.extend(drawn, slots, len(waiting))
            drawn, going = self.going(drawn, slots.layout.held)
            so_far(SAMPLING, total - len(going) - len(waiting), total)
            if not len(going) and not len(waiting):
                return drawn, prompts
            longest = int(np.max(np.asarray(drawn.lengths)[going] - 1, initial=0))
            for layout in self.schedule.moves(slots.layout, going, waiting):
                # a cache grows in a move of its own, so that there are fewer moves to compile
                length = slots.length if self.schedule.together else self._cache_length(longest)
                slots = self.move(prompts, slots, layout, longest, length)
                waiting = np.setdiff1d(waiting, layout.held)
            if slots.filled == slots.length:
                slots = self.move(prompts, slots, slots.layout, longest, self._cache_length(longest))

    def begin(self) -> tuple[Drawn, Any]:
        """Read the prompts and draw first tokens; also return the keys and values of the prompts."""
        self.note("begin", *self.prompts.tokens.shape, self.schedule.samples, self.static)
        return _begin(self.graphdef, self.weights, self.prompts, self.numbers, self.fixed, self.cache_dtype)

    def _prepare(self, drawn: Drawn, prompts: Any) -> Drawn:
        """Run once, with nothing in the slots, through all numbers of them that halving leads to, at all cache lengths.

        Not covered are calls whose completions wait for slots, which need more shapes.
        """
        if not self.schedule.together:
            return drawn
        first, lengths = self.schedule.first(NONE), self._cache_lengths()
        layouts = [first, *self.schedule.moves(first, NONE, NONE)]
        if {self._extension(layout.shape, length) for layout in layouts for length in lengths} <= self.compiled:
            return drawn
        slots = self.open(prompts, first, lengths[0])
        for length, longer in itertools.pairwise((*lengths, 0)):
            at = slots
            for layout in layouts:
                if layout is not first:
                    at = self.move(prompts, at, layout, 0, length)
                drawn, at = self.extend(drawn, at)
                if longer:
                    grown = self.move(prompts, at, layout, 0, longer)
                    slots = grown if layout is first else slots
        return drawn

    def going(self, drawn: Drawn, seqs: Int[np.ndarray, "seq"]) -> tuple[Drawn, Int[np.ndarray, "seq"]]:
        """Check stop strings; return which of these completions are unfinished."""
        if self.stops is not None:
            drawn = self.stops.cut(drawn, seqs)
        return drawn, seqs[~np.asarray(drawn.ended)[seqs]]

    def open(self, prompts: Any, layout: Layout, length: int) -> Slots:
        """Return slots without tokens of their own."""
        self.note("open", layout.seqs.size, length)
        cache = _empty(self.graphdef, self.weights, layout.seqs.size, length, self.cache_dtype)
        return Slots(layout=layout, prefix=self.prefix(prompts, layout), cache=cache, filled=0, length=length)

    def extend(self, drawn: Drawn, slots: Slots, waiting: int = 0) -> tuple[Drawn, Slots]:
        """Draw tokens until another completion could use a slot, or the cache is full."""
        self.note(*self._extension(slots.layout.shape, slots.length))
        steps = slots.length - slots.filled
        if self.stops is not None:
            steps = min(steps, self.stops.every)
        going = int(np.sum(~np.asarray(drawn.ended)[slots.layout.held]))
        drawn, cache, done = _extend(
            self.graphdef,
            self.weights,
            drawn,
            slots.prefix,
            slots.cache,
            slots.layout.seqs_or(len(drawn.ended)),
            self.numbers,
            self.fixed,
            np.int32(steps),
            np.int32(self.schedule.enough(slots.layout, going, waiting)),
        )
        return drawn, attrs.evolve(slots, cache=cache, filled=slots.filled + int(done))

    def move(self, prompts: Any, slots: Slots, layout: Layout, longest: int, length: int) -> Slots:
        """Move completions to their slots in a new layout, and their up to `longest` tokens to the first positions."""
        self.note("move", slots.layout.seqs.size, slots.length, layout.seqs.size, length)
        cache = _move(
            slots.cache,
            slots.layout.seqs.size,
            slots.layout.find(layout.seqs),
            np.int32(slots.filled - longest),
            self.length_axes,
            length,
        )
        prefix = slots.prefix if layout is slots.layout else self.prefix(prompts, layout)
        return Slots(layout=layout, prefix=prefix, cache=cache, filled=longest, length=length)

    def prefix(self, prompts: Any, layout: Layout) -> Any:
        """Return the keys and values of each row's prompt."""
        if layout.prompts.tolist() == list(range(self.schedule.prompts)):
            return prompts
        self.note("take", len(layout.prompts), *self.prompts.tokens.shape)
        return _take(prompts, self.schedule.prompts, layout.prompts.astype(np.int32))

    def _cache_length(self, filled: int) -> int:
        """Return the length of a cache with so many positions filled."""
        slack = 1 if self.schedule.together else SLACK
        length = SHORTEST
        while length < filled + slack:
            length *= 2
        return min(length, max(1, self.fixed.max_tokens - 2 + slack))

    def _cache_lengths(self) -> list[int]:
        """Return the lengths that the cache may have, from the shortest on."""
        found = [self._cache_length(0)]
        while (longer := self._cache_length(found[-1])) > found[-1]:
            found.append(longer)
        return found

    def _extension(self, shape: tuple[int, int], length: int) -> tuple[Any, ...]:
        return ("extend", *shape, length, self.prompts.tokens.shape[1], self.static)

    def note(self, *shape: Any) -> None:
        """Record that a program with these sizes is used."""
        self.compiled.add(shape)

    @property
    def static(self) -> tuple[Any, ...]:
        """The settings that a change of would compile the programs again."""
        return self.fixed, self.numbers.top_p is None, self.numbers.min_p is None


def length_axes(graphdef: Any, weights: Weights) -> tuple[int | None, ...]:
    """Return the axis of each array of the model's cache that grows with its length."""

    def shapes(length: int) -> list[tuple[int, ...]]:
        cache = jax.eval_shape(lambda weights: nnx.merge(graphdef, *weights).init_cache(1, length), weights)
        return [leaf.shape for leaf in jax.tree.leaves(cache)]

    pairs = zip(shapes(2), shapes(3), strict=True)
    return tuple(next((i for i, (a, b) in enumerate(zip(*pair, strict=True)) if a != b), None) for pair in pairs)


@compiled(static=(0, 4, 5))
def _begin(
    graphdef: Any,
    weights: Weights,
    prompts: Prompts,
    numbers: Numbers,
    fixed: Fixed,
    cache_dtype: str | None,
) -> tuple[Drawn, Any]:
    model, (tokens, mask, keys, refused) = nnx.merge(graphdef, *weights), prompts
    drawn, cache = begin(model, tokens, mask, keys, numbers, fixed)
    drawn = drawn._replace(ended=drawn.ended | refused, failed=drawn.failed | refused)
    return whole(drawn), by_rows(_cast(cache, cache_dtype))


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _empty(graphdef: Any, weights: Weights, slots: int, length: int, cache_dtype: str | None) -> Any:
    return by_rows(_cast(nnx.merge(graphdef, *weights).init_cache(slots, length), cache_dtype))


@compiled(static=(0, 7), donate=(2, 4))
def _extend(
    graphdef: Any,
    weights: Weights,
    drawn: Drawn,
    prefix: Any,
    cache: Any,
    seqs: Int[Array, "slot"],
    numbers: Numbers,
    fixed: Fixed,
    steps: Int[Array, ""],
    enough: Int[Array, ""],
) -> tuple[Drawn, Any, Int[Array, ""]]:
    model = nnx.merge(graphdef, *weights)
    drawn, cache, done = extend(model, drawn, prefix, cache, seqs, numbers, fixed, steps, enough)
    return whole(drawn), by_rows(cache), done


@functools.partial(jax.jit, static_argnums=(1, 4, 5))
def _move(
    cache: Any, before: int, slots: Int[Array, "slot"], shift: Int[Array, ""], axes: tuple[int | None, ...], length: int
) -> Any:
    return by_rows(move(cache, before, slots, shift, axes, length))


@functools.partial(jax.jit, static_argnums=1)
def _take(prompts: Any, before: int, rows: Int[Array, "row"]) -> Any:
    return by_rows(jax.tree.map(lambda leaf: take_rows(leaf, before, rows) if leaf.ndim else leaf, prompts))


def by_rows(cache: Any) -> Any:
    """Shard a cache by rows if there is a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return cache
    ways = math.prod(mesh.shape[axis] for axis in EACH)

    def shard(array: Array) -> Array:
        spec = PartitionSpec(EACH) if array.ndim and array.shape[0] % ways == 0 else PartitionSpec()
        return jax.lax.with_sharding_constraint(array, spec)

    return jax.tree.map(shard, cache)


def whole(drawn: Drawn) -> Drawn:
    """Replicate the completions if there is a mesh, since slots may hold any of them."""
    if jax.sharding.get_abstract_mesh().empty:
        return drawn
    return jax.lax.with_sharding_constraint(drawn, PartitionSpec())


def _cast(cache: Any, dtype: str | None) -> Any:
    """Store keys and values in another dtype."""
    if dtype is None:
        return cache
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, cache)
