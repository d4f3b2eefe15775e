"""Sampling whole completions with a key-value cache: one traced function."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.protocols import LanguageModel
from dovetail_rollout.sampling import sample


@attrs.frozen(kw_only=True)
class Limits:
    """What of the sampling is fixed at compile time."""

    max_tokens: int
    top_k: int | None
    eos_ids: tuple[int, ...]
    pad_id: int


class Randomness(NamedTuple):
    """Each row's key, and what of the sampling may change without a recompilation."""

    keys: Key[Array, "seq"]
    temperature: Float[Array, ""]
    top_p: Float[Array, ""] | None


class Decoded(NamedTuple):
    """Completions so far, `step` tokens long; padding, zero and false beyond a row's end."""

    step: Int[Array, ""]
    tokens: Int[Array, "seq token"]
    mask: Bool[Array, "seq token"]
    logps: Float[Array, "seq token"]
    finished: Bool[Array, "seq"]


def decode(
    model: LanguageModel,
    prompt_tokens: Int[Array, "prompt position"],
    prompt_mask: Bool[Array, "prompt position"],
    keys: Key[Array, "prompt sample"],
    temperature: Float[Array, ""],
    top_p: Float[Array, ""] | None,
    limits: Limits,
) -> Decoded:
    """Sample a completion for each key, prompt-major.

    Each prompt is read once, whatever the number of its samples. Token `t` of a row is drawn with `fold_in(key, t)`, so
    that a completion depends on its prompt and key alone. The loop ends when all rows have.
    """
    randomness = Randomness(keys.reshape(-1), temperature, top_p)
    hidden, cache = _prefill(model, prompt_tokens, prompt_mask, room=limits.max_tokens - 1)
    hidden, cache = _share((hidden, cache), keys.shape[1])
    decoded = _append(_nothing(len(randomness.keys), limits), model.logits(hidden), randomness, limits)

    def more(state: tuple[Decoded, Any]) -> Bool[Array, ""]:
        return (state[0].step < limits.max_tokens) & ~jnp.all(state[0].finished)

    def extend(state: tuple[Decoded, Any]) -> tuple[Decoded, Any]:
        decoded, cache = state
        last = jax.lax.dynamic_slice_in_dim(decoded.tokens, decoded.step - 1, 1, axis=1)
        hidden, cache = model(last, ~decoded.finished[:, None], cache)
        return _append(decoded, model.logits(hidden[:, 0]), randomness, limits), cache

    return jax.lax.while_loop(more, extend, (decoded, cache))[0]


def _prefill(
    model: LanguageModel,
    tokens: Int[Array, "prompt position"],
    mask: Bool[Array, "prompt position"],
    room: int,
) -> tuple[Float[Array, "prompt width"], Any]:
    """Read the prompts into a cache with `room` for more; return the hidden state of each one's last token."""
    batch, length = tokens.shape
    hidden, cache = model(tokens, mask, model.init_cache(batch, length + room))
    return hidden[:, -1], cache


def _share(prefix: Any, samples: int) -> Any:
    """Give each sample its prompt's row: rows are on the first axis of every array, scalars are common to all."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, samples, axis=0) if leaf.ndim else leaf, prefix)


def _nothing(rows: int, limits: Limits) -> Decoded:
    shape = (rows, limits.max_tokens)
    return Decoded(
        step=jnp.zeros((), jnp.int32),
        tokens=jnp.full(shape, limits.pad_id, jnp.int32),
        mask=jnp.zeros(shape, bool),
        logps=jnp.zeros(shape, jnp.float32),
        finished=jnp.zeros(rows, bool),
    )


def _append(decoded: Decoded, logits: Float[Array, "seq vocab"], randomness: Randomness, limits: Limits) -> Decoded:
    """Draw the next token of every unfinished row; a row ends with an EOS, which it keeps."""
    uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, decoded.step), dtype=jnp.float32))
    tokens, logps = sample(logits, uniform(randomness.keys), randomness.temperature, randomness.top_p, limits.top_k)
    alive = ~decoded.finished
    is_eos = jnp.isin(tokens, jnp.array(limits.eos_ids, jnp.int32))

    def write(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new[:, None], decoded.step, axis=1)

    return Decoded(
        step=decoded.step + 1,
        tokens=write(decoded.tokens, jnp.where(alive, tokens, limits.pad_id)),
        mask=write(decoded.mask, alive),
        logps=write(decoded.logps, jnp.where(alive, logps, 0.0)),
        finished=decoded.finished | is_eos,
    )
