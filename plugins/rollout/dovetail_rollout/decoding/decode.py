"""Sampling completions with a key-value cache: the traced functions.

`begin` reads the prompts and draws first tokens; `extend` draws further ones in *slots*, each of which has room for one
completion; `resume` reads what comes between two turns. The slots of a row are consecutive and share the prompt in that
row of the prefix. The caller decides which completion is in which slot (`dovetail_rollout.decoding.slots`), and changes
it with `move`.

All slots share one cache with a common write position, so that a step updates it in place; a completion that starts
late has empty positions before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.protocols import LanguageModel
from dovetail_rollout.decoding.sampling import Numbers, sample

PREFILL_TOKENS = 8192
"""Prompt tokens read at a time: more are not faster, and their activations take memory."""

CHOICE = jnp.int16
"""The type of recorded choices: a token has a few in each of many layers."""

BLOCK = 16
"""Tokens of an observation read at a time; it is padded to a multiple of them."""


@attrs.frozen(kw_only=True)
class Fixed:
    """The settings of sampling that are fixed at compile time."""

    max_tokens: int
    top_k: int | None
    eos_ids: tuple[int, ...]
    keep_support: bool = False
    keep_choices: bool = False


class Drawn(NamedTuple):
    """All completions of a call as far as they have been drawn; zero beyond their `lengths`.

    `uniform` holds the random numbers of each token, `support` the ids that it was chosen among, if they are kept.
    `choices` and `prompt_choices` are what the model chose while it read completions and prompts, if that is kept. A
    row has `ended` with an EOS, at its length limit in `limits`, or because it `failed`: its logits were NaN or
    infinite.
    """

    tokens: Int[Array, "seq token"]
    logps: Float[Array, "seq token"]
    uniform: Float[Array, "seq token 2"]
    lengths: Int[Array, "seq"]
    ended: Bool[Array, "seq"]
    failed: Bool[Array, "seq"]
    limits: Int[Array, "seq"]
    support: Int[Array, "seq token candidate"] | None = None
    choices: Int[Array, "seq token choice"] | None = None
    prompt_choices: Int[Array, "prompt position choice"] | None = None


def begin(
    model: LanguageModel,
    prompt_tokens: Int[Array, "prompt position"],
    prompt_mask: Bool[Array, "prompt position"],
    keys: Key[Array, "prompt sample"],
    numbers: Numbers,
    fixed: Fixed,
) -> tuple[Drawn, Any]:
    """Read each prompt once and draw the first token of its completions, which are ordered by prompt.

    Token `t` of a completion is drawn with `fold_in(key, t)`, so it depends only on its prompt and key. Returns the
    completions and the keys and values of the prompts.
    """
    hidden, prefix, chosen = _read(model, prompt_tokens, prompt_mask, fixed)
    samples = keys.shape[1]
    seqs = jnp.arange(keys.size, dtype=jnp.int32)
    logits = jnp.repeat(model.logits(hidden), samples, axis=0)
    drawn = _append(nothing(keys.reshape(-1), fixed), seqs, logits, numbers, fixed)
    if chosen is not None:
        empty = jnp.full((*drawn.tokens.shape, chosen.shape[-1]), -1, CHOICE)
        drawn = drawn._replace(choices=empty, prompt_choices=chosen)
    return drawn, prefix


def extend(
    model: LanguageModel,
    drawn: Drawn,
    prefix: Any,
    cache: Any,
    seqs: Int[Array, "slot"],
    numbers: Numbers,
    fixed: Fixed,
    steps: Int[Array, ""],
    enough: Int[Array, ""],
) -> tuple[Drawn, Any, Int[Array, ""]]:
    """Draw up to `steps` further tokens of the completions in the slots, or until at most `enough` are unfinished.

    `seqs` says which completion each slot holds; an empty slot has the number of completions, or more. `cache` has
    the keys and values of the slots' own tokens except the last. The third result is the number of steps.
    """

    def more(state: tuple[Drawn, Any, Array]) -> Bool[Array, ""]:
        return (state[2] < steps) & (jnp.sum(_going(state[0], seqs), dtype=jnp.int32) > enough)

    def step(state: tuple[Drawn, Any, Array]) -> tuple[Drawn, Any, Array]:
        drawn, cache, done = state
        at, going = drawn.lengths.at[seqs].get(mode="clip") - 1, _going(drawn, seqs)
        last = drawn.tokens.at[seqs, at].get(mode="clip")
        hidden, cache, chosen = _called(model, last[:, None], going[:, None], cache, fixed, prefix=prefix)
        if drawn.choices is not None and chosen is not None:
            own = jnp.where(going, seqs, len(drawn.ended))
            drawn = drawn._replace(choices=drawn.choices.at[own, at].set(chosen[:, 0], mode="drop"))
        return _append(drawn, seqs, model.logits(hidden[:, 0]), numbers, fixed), cache, done + 1

    return jax.lax.while_loop(more, step, (drawn, cache, jnp.zeros((), jnp.int32)))


def resume(
    model: LanguageModel,
    drawn: Drawn,
    prefix: Any,
    cache: Any,
    seqs: Int[Array, "slot"],
    said: Int[Array, "slot position"],
    blocks: Int[Array, ""],
    numbers: Numbers,
    fixed: Fixed,
) -> tuple[Drawn, Any]:
    """Read the last `blocks` blocks of `said` and draw a token after them; -1 is padding, on the left.

    What is read begins with the last token of the turn before, which is not in the cache.
    """

    def read(number: Int[Array, ""], cache: Any) -> tuple[Float[Array, "slot width"], Any]:
        first = said.shape[1] - (blocks - number) * BLOCK
        tokens = jax.lax.dynamic_slice_in_dim(said, first, BLOCK, axis=1)
        hidden, cache = model(jnp.maximum(tokens, 0), tokens >= 0, cache, prefix=prefix)
        return hidden[:, -1], cache

    hidden = jax.eval_shape(read, blocks, cache)[0]
    start = jnp.zeros(hidden.shape, hidden.dtype), cache
    hidden, cache = jax.lax.fori_loop(0, blocks, lambda number, state: read(number, state[1]), start)
    return _append(drawn, seqs, model.logits(hidden), numbers, fixed), cache


def pick(
    cache: Any,
    before: int,
    places: Int[Array, "slot position"],
    filled: Int[Array, ""],
    axes: tuple[int | None, ...],
) -> Any:
    """Return a cache in which position j of slot i is position `places[i, j]`, empty if that is -1.

    `axes` says which axis of each array has the positions; an array without any keeps its rows.
    """

    def leaf(array: Array, axis: int | None) -> Array:
        if not array.ndim:
            return filled
        if axis is None:
            return array
        by_slot = array.reshape(before, -1, *array.shape[1:])
        others = [i for i in range(1, by_slot.ndim) if i != axis + 1]
        index = jnp.expand_dims(places, others)
        taken = jnp.take_along_axis(by_slot, jnp.maximum(index, 0), axis=axis + 1)
        return jnp.where(index >= 0, taken, jnp.zeros((), array.dtype)).reshape(array.shape)

    leaves, structure = jax.tree.flatten(cache)
    return jax.tree.unflatten(structure, [leaf(array, axis) for array, axis in zip(leaves, axes, strict=True)])


def put(wide: Any, narrow: Any, before: int, slots: Int[Array, "slot"]) -> Any:
    """Return a cache of `before` slots in which `narrow` replaces these slots; a slot of `before` is none of them."""

    def leaf(old: Array, new: Array) -> Array:
        if not old.ndim:
            return new
        by_slot = old.reshape(before, -1, *old.shape[1:])
        return by_slot.at[slots].set(new.reshape(len(slots), *by_slot.shape[1:]), mode="drop").reshape(old.shape)

    return jax.tree.map(leaf, wide, narrow)


def move(
    cache: Any, before: int, slots: Int[Array, "slot"], shift: Int[Array, ""], axes: tuple[int | None, ...], length: int
) -> Any:
    """Return the cache of these of the `before` slots in this order, `length` positions from position `shift` on.

    -1 is an empty slot. `axes` says which axis of each array has the positions.
    """

    def leaf(array: Array, axis: int | None) -> Array:
        if not array.ndim:
            return array - shift
        taken = take_rows(array, before, slots)
        if axis is None:
            return taken
        taken = jnp.roll(taken, -shift, axis=axis)
        kept = jax.lax.slice_in_dim(taken, 0, min(length, taken.shape[axis]), axis=axis)
        return jnp.pad(kept, [(0, length - kept.shape[i] if i == axis else 0) for i in range(kept.ndim)])

    leaves, structure = jax.tree.flatten(cache)
    return jax.tree.unflatten(structure, [leaf(array, axis) for array, axis in zip(leaves, axes, strict=True)])


def take_rows(array: Array, before: int, rows: Int[Array, "row"]) -> Array:
    """Return these of the `before` rows of an array, zeros for -1; a row may have several entries.

    >>> take_rows(jnp.arange(6), 3, jnp.array([2, -1]))
    Array([4, 5, 0, 0], dtype=int32)
    """
    by_row = array.reshape(before, -1, *array.shape[1:])
    taken = jnp.take(by_row, jnp.maximum(rows, 0), axis=0)
    there = (rows >= 0).reshape(-1, *[1] * (taken.ndim - 1))
    return jnp.where(there, taken, jnp.zeros((), array.dtype)).reshape(-1, *array.shape[1:])


def _called(
    model: Any,
    tokens: Int[Array, "row position"],
    mask: Bool[Array, "row position"],
    cache: Any,
    fixed: Fixed,
    **also: Any,
) -> tuple[Float[Array, "row position width"], Any, Int[Array, "row position choice"] | None]:
    """Return hidden states, the cache, and the model's choices if they are kept."""
    if not fixed.keep_choices:
        return *model(tokens, mask, cache, **also), None
    return model(tokens, mask, cache, choices=jnp.full((*tokens.shape, model.choices), -1, CHOICE), **also)


def _read(
    model: LanguageModel, tokens: Int[Array, "prompt position"], mask: Bool[Array, "prompt position"], fixed: Fixed
) -> tuple[Float[Array, "prompt width"], Any, Int[Array, "prompt position choice"] | None]:
    """Return the hidden state of each prompt's last token, the prompts' cache, and the choices if they are kept."""
    prompts, length = tokens.shape

    def read(piece: tuple[Array, Array]) -> tuple[Array, Any, Array | None]:
        hidden, cache, chosen = _called(model, *piece, model.init_cache(len(piece[0]), length), fixed)
        return hidden[:, -1], cache, chosen

    at_once = next(n for n in range(prompts, 0, -1) if prompts % n == 0 and (n * length <= PREFILL_TOKENS or n == 1))
    if at_once == prompts:
        return read((tokens, mask))
    pieces = jax.tree.map(lambda x: x.reshape(-1, at_once, length), (tokens, mask))
    hidden, caches, chosen = jax.lax.map(read, pieces)
    # What is common to all rows is the same in every piece.
    join = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]) if x.ndim > 1 else x[0], caches)
    chosen = None if chosen is None else chosen.reshape(*tokens.shape, -1)
    return hidden.reshape(prompts, -1), join, chosen


def nothing(keys: Key[Array, "seq"], fixed: Fixed) -> Drawn:
    """Return completions before their first token, with their random numbers."""
    seqs, length = len(keys), fixed.max_tokens
    fold = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(None, 0)), in_axes=(0, None))
    draw = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (2,), jnp.float32)))
    return Drawn(
        tokens=jnp.zeros((seqs, length), jnp.int32),
        logps=jnp.zeros((seqs, length), jnp.float32),
        uniform=draw(fold(keys, jnp.arange(length))),
        lengths=jnp.zeros(seqs, jnp.int32),
        ended=jnp.zeros(seqs, bool),
        failed=jnp.zeros(seqs, bool),
        limits=jnp.full(seqs, length, jnp.int32),
        support=jnp.full((seqs, length, fixed.top_k or 0), -1, jnp.int32) if fixed.keep_support else None,
    )


def _going(drawn: Drawn, seqs: Int[Array, "slot"]) -> Bool[Array, "slot"]:
    """Tell which slots hold an unfinished completion."""
    return ~drawn.ended.at[seqs].get(mode="fill", fill_value=True)


def _append(
    drawn: Drawn, seqs: Int[Array, "slot"], logits: Float[Array, "slot vocab"], numbers: Numbers, fixed: Fixed
) -> Drawn:
    """Draw the next token of every unfinished completion; one that ends with an EOS keeps it."""
    at = drawn.lengths.at[seqs].get(mode="clip")
    uniform = drawn.uniform.at[seqs, at].get(mode="clip")
    tokens, logps, support = sample(logits, uniform, numbers, fixed.top_k, keep_support=fixed.keep_support)
    failed = ~jnp.isfinite(logps)
    limits = drawn.limits.at[seqs].get(mode="clip")
    ended = jnp.isin(tokens, jnp.array(fixed.eos_ids, jnp.int32)) | (at + 1 >= limits) | failed
    # Out of range means that nothing is written.
    seqs = jnp.where(_going(drawn, seqs), seqs, len(drawn.ended))
    return Drawn(
        tokens=drawn.tokens.at[seqs, at].set(tokens, mode="drop"),
        logps=drawn.logps.at[seqs, at].set(logps, mode="drop"),
        uniform=drawn.uniform,
        lengths=drawn.lengths.at[seqs].add(1, mode="drop"),
        ended=drawn.ended.at[seqs].set(ended, mode="drop"),
        failed=drawn.failed.at[seqs].set(failed, mode="drop"),
        limits=drawn.limits,
        support=None if drawn.support is None else drawn.support.at[seqs, at].set(support, mode="drop"),
        choices=drawn.choices,
        prompt_choices=drawn.prompt_choices,
    )
