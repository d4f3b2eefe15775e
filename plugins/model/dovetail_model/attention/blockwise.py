"""Attention over one block of keys at a time; scores are never stored, neither in the forward nor the backward pass.

Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory"; Dao 2023, "FlashAttention-2", algorithms 1 and 2.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from dovetail_model.attention.sight import HIDDEN, NOWHERE, Places, Segment, Sight, as_given, by_query, for_rows, sees

CPU_BLOCK: Final = 128
ACCELERATOR_BLOCK: Final = 512
"""Number of keys in a block, and of queries (all samples and heads that share a key-value head count together).

On CPUs a block's scores and sums fit into the caches; accelerators need larger blocks to stay busy (not measured)."""
LEAST: Final = 16
"""The least number of tokens in a block."""
LOWEST: Final = float(jnp.finfo(jnp.float32).min)
SAVED: Final = "attention"
"""The checkpoint name of the values that the backward pass needs, for rematerialisation policies."""


def blockwise(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    query_block: int | None = None,
    key_block: int | None = None,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values; see `dovetail_model.attention.attend`.

    For each block of queries, an online softmax goes through the blocks of keys that contain a visible key: m is the
    greatest score so far, l = ∑ exp(s - m), o = ∑ exp(s - m) v; a greater m scales l and o down. The backward pass
    recomputes the scores and takes the log-sum-exp L = m + log l from the forward pass:

        p = exp(s - L),  ds = p (∂o vᵀ - ∑ ∂o·o + ∂L),  ∂q = ds k,  ∂k = dsᵀ q,  ∂v = pᵀ ∂o

    The results of the segments are merged with the weights exp(L_i - log ∑_j exp(L_j)). A token that sees no key gets
    zeros. Sums are float32; products have the type of the queries. The time is proportional to the number of visible
    blocks: half of all blocks for causal attention, a band of them for a window.
    """
    usual = CPU_BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK
    query_block, key_block = query_block or usual, key_block or usual
    scaled = queries * scale
    parts = []
    for segment in segments:
        mine = for_rows(scaled, segment)
        sample, group, token = mine.shape[2:5]
        tokens = min(token, max(LEAST, query_block // (sample * group)))
        # parts to be merged stay float32; a single part is rounded here, so that less is kept for the backward pass
        dtype = queries.dtype.name if len(segments) == 1 else "float32"
        plan = _Plan(mine.shape, dtype, cap, segment.sight.window, tokens, min(key_block, segment.keys.shape[1]))
        keys, values = (x.astype(queries.dtype) for x in (segment.keys, segment.values))
        found: Any = _part(plan, mine, keys, values, segment.sight)
        mixed, total = found
        parts.append((by_query(mixed, len(queries)), by_query(total, len(queries))))
    return as_given(merge(parts), queries)


def merge(
    parts: list[tuple[Float[Array, "*shape head_dim"], Float[Array, "*shape"]]],
) -> Float[Array, "*shape head_dim"]:
    """Return the mix over all keys, given the mixes over parts of them, each with the log-sum-exp of its scores."""
    if len(parts) == 1:
        return parts[0][0]
    highest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, (total for _, total in parts)))
    weights = [jnp.exp(total - highest) for _, total in parts]
    mixed = sum(weight[..., None] * mixed for weight, (mixed, _) in zip(weights, parts, strict=True))
    return mixed / sum(weights, jnp.zeros(()))[..., None]


class _Plan(NamedTuple):
    """The static values: shape and type of the result, soft cap and window, and the sizes of blocks."""

    shape: tuple[int, ...]
    dtype: str
    cap: float | None
    window: int | None
    tokens: int
    keys: int


Queries = Float[Array, "row kv_head sample group token head_dim"]
ForQueries = Float[Array, "row kv_head sample group token"]
Keys = Float[Array, "batch key head_dim"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _part(plan: _Plan, queries: Queries, keys: Keys, values: Keys, sight: Sight) -> tuple[Queries, ForQueries]:
    return _forward(plan, queries, keys, values, sight)


def _forward(plan: _Plan, queries: Queries, keys: Keys, values: Keys, sight: Sight) -> tuple[Queries, ForQueries]:
    """Return the mix of a segment's values for each query, and the log-sum-exp of its scores."""
    blocks = _Blocks.of(plan, sight)
    keys, values = (_filled(x, 1, plan.keys, 0) for x in (keys, values))

    def one(block: Any) -> tuple[Array, Array]:
        (mine,), tokens, low, high = block

        def step(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            highest, total, mixed = carry
            scores, seen = _scores(plan, mine, keys, tokens, blocks, j)
            now = jnp.maximum(highest, jnp.max(scores, axis=-1))
            shrink = jnp.exp(highest - now)
            weights = jnp.where(seen, jnp.exp(scores - now[..., None]), 0.0)
            mixed = mixed * shrink[..., None] + _times(weights, _at(values, j, plan))
            return now, total * shrink + jnp.sum(weights, axis=-1), mixed

        shape = mine.shape[:-1]
        start = jnp.full(shape, LOWEST), jnp.zeros(shape), jnp.zeros(mine.shape)
        highest, total, mixed = jax.lax.fori_loop(low, high, step, start)
        some = jnp.where(total > 0, total, 1.0)
        return (mixed / some[..., None]).astype(plan.dtype), jnp.where(total > 0, highest + jnp.log(some), LOWEST)

    mixed, total = jax.lax.map(one, ((_cut(queries, plan),), *blocks[:3]))
    return _joined(mixed, plan), _joined(total, plan)


def _part_forward(plan: _Plan, queries: Queries, keys: Keys, values: Keys, sight: Sight) -> tuple[Any, Any]:
    mixed, total = (checkpoint_name(x, SAVED) for x in _forward(plan, queries, keys, values, sight))
    return (mixed, total), (queries, keys, values, sight, mixed, total)


def _part_backward(plan: _Plan, kept: Any, upstream: tuple[Queries, ForQueries]) -> tuple[Any, ...]:
    queries, keys, values, sight, mixed, total = kept
    of_mixed, of_total = (x.astype(jnp.float32) for x in upstream)
    blocks, length = _Blocks.of(plan, sight), keys.shape[1]
    keys, values = (_filled(x, 1, plan.keys, 0) for x in (keys, values))
    gap = jnp.sum(of_mixed * mixed.astype(jnp.float32), axis=-1) - of_total

    def one(sums: tuple[Array, Array], block: Any) -> tuple[tuple[Array, Array], Array]:
        (mine, above, total, gap), tokens, low, high = block

        def step(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            of_mine, of_keys, of_values = carry
            scores, seen = _scores(plan, mine, keys, tokens, blocks, j)
            weights = jnp.where(seen, jnp.exp(scores - total[..., None]), 0.0)
            slope = weights * (_against(above, _at(values, j, plan)) - gap[..., None])
            if plan.cap is not None:
                slope = slope * (1.0 - jnp.square(jnp.where(seen, scores, 0.0) / plan.cap))
            of_keys = _add_at(of_keys, j, plan, _transposed(slope, mine))
            return (
                of_mine + _times(slope, _at(keys, j, plan)),
                of_keys,
                _add_at(of_values, j, plan, _transposed(weights, above)),
            )

        of_mine, *after = jax.lax.fori_loop(low, high, step, (jnp.zeros(mine.shape), *sums))
        return (after[0], after[1]), of_mine

    cut = tuple(_cut(x, plan) for x in (queries, of_mixed.astype(queries.dtype), total, gap))
    zeros = jnp.zeros(keys.shape), jnp.zeros(values.shape)
    sums, of_queries = jax.lax.scan(one, zeros, (cut, *blocks[:3]))
    of_keys, of_values = (x[:, :length].astype(keys.dtype) for x in sums)
    return _joined(of_queries, plan).astype(queries.dtype), of_keys, of_values, None


_part.defvjp(_part_forward, _part_backward)


class _Blocks(NamedTuple):
    """The places of the tokens in blocks, the range `low` to `high` of key blocks for each, and the keys' places."""

    tokens: Places
    low: Int[Array, "block"]
    high: Int[Array, "block"]
    keys: Places

    @classmethod
    def of(cls, plan: _Plan, sight: Sight) -> _Blocks:
        """Cut tokens and keys into blocks; both are padded with places that neither see nor are seen."""
        row, _, sample, _, token, _ = plan.shape

        def cut(x: Array, value: int) -> Array:
            filled = _filled(jnp.broadcast_to(x, (row, sample, token)), 2, plan.tokens, value)
            return jnp.moveaxis(filled.reshape(row, sample, -1, plan.tokens), 2, 0)

        of_tokens, of_keys = sight.tokens.texts, sight.keys.texts
        tokens = Places(cut(sight.tokens.at, NOWHERE), None if of_tokens is None else cut(of_tokens, 0))
        keys = Places(
            _filled(sight.keys.at, 1, plan.keys, HIDDEN), None if of_keys is None else _filled(of_keys, 1, plan.keys, 0)
        )
        met = _met(tokens, jax.tree.map(lambda x: x.reshape(row, -1, plan.keys), keys), sight.window)
        low = jnp.argmax(met, axis=1).astype(jnp.int32)
        high = met.shape[1] - jnp.argmax(met[:, ::-1], axis=1).astype(jnp.int32)
        return cls(tokens, low, jnp.where(met.any(axis=1), high, low), keys)


def _met(tokens: Places, keys: Places, window: int | None) -> Bool[Array, "token_block key_block"]:
    """Return, for each [row, sample, token] block of tokens, which [row, key] blocks of keys may have a visible key."""
    is_token, is_key = tokens.at > NOWHERE, keys.at < HIDDEN
    earliest, latest = jnp.min(keys.at, axis=2), jnp.max(jnp.where(is_key, keys.at, NOWHERE), axis=2)
    met = earliest[None] <= jnp.max(tokens.at, axis=(2, 3))[..., None]
    if window is not None:
        first = jnp.min(jnp.where(is_token, tokens.at, HIDDEN), axis=(2, 3))
        met &= first[..., None] - latest[None] < window
    if tokens.texts is not None and keys.texts is not None:
        lowest, highest = jnp.where(is_token, tokens.texts, HIDDEN), jnp.where(is_token, tokens.texts, NOWHERE)
        met &= jnp.min(jnp.where(is_key, keys.texts, HIDDEN), axis=2)[None] <= jnp.max(highest, axis=(2, 3))[..., None]
        met &= jnp.max(jnp.where(is_key, keys.texts, NOWHERE), axis=2)[None] >= jnp.min(lowest, axis=(2, 3))[..., None]
    return met.any(axis=1)


def _scores(
    plan: _Plan, queries: Queries, keys: Keys, tokens: Places, blocks: _Blocks, j: Int[Array, ""]
) -> tuple[Float[Array, "row kv_head sample group token key"], Bool[Array, "row 1 sample 1 token key"]]:
    """Return the scores of a block (the lowest number for invisible keys) and the mask of visible keys."""
    places = jax.tree.map(lambda x: _at(x, j, plan), blocks.keys)
    seen = sees(tokens, places, plan.window)[:, None, :, None]
    scores = _against(queries, _at(keys, j, plan))
    if plan.cap is not None:
        scores = plan.cap * jnp.tanh(scores / plan.cap)
    return jnp.where(seen, scores, LOWEST), seen


def _against(queries: Queries, keys: Keys) -> Float[Array, "row kv_head sample group token key"]:
    """Return q kᵀ."""
    flat = queries.reshape(len(keys), -1, keys.shape[-1])
    found = jnp.einsum("bqd,bkd->bqk", flat, keys, preferred_element_type=jnp.float32)
    return found.reshape(*queries.shape[:-1], keys.shape[1])


def _times(weights: Float[Array, "row kv_head sample group token key"], values: Keys) -> Queries:
    """Return p v."""
    flat = weights.astype(values.dtype).reshape(len(values), -1, weights.shape[-1])
    found = jnp.einsum("bqk,bkd->bqd", flat, values, preferred_element_type=jnp.float32)
    return found.reshape(*weights.shape[:-1], values.shape[-1])


def _transposed(weights: Float[Array, "row kv_head sample group token key"], queries: Queries) -> Keys:
    """Return pᵀ q."""
    batch = weights.shape[0] * weights.shape[1]
    flat = weights.astype(queries.dtype).reshape(batch, -1, weights.shape[-1])
    own = queries.reshape(batch, -1, queries.shape[-1])
    return jnp.einsum("bqk,bqd->bkd", flat, own, preferred_element_type=jnp.float32)


def _filled(x: Array, axis: int, size: int, value: int) -> Array:
    """Pad an axis to a multiple of `size`."""
    filling = -x.shape[axis] % size
    return jnp.pad(x, [(0, filling * (i == axis)) for i in range(x.ndim)], constant_values=value) if filling else x


def _cut(x: Float[Array, "row kv_head sample group token *rest"], plan: _Plan) -> Float[Array, "block ..."]:
    """Cut the token axis into blocks and move the block axis to the front."""
    x = _filled(x, 4, plan.tokens, 0)
    return jnp.moveaxis(x.reshape(*x.shape[:4], -1, plan.tokens, *x.shape[5:]), 4, 0)


def _joined(x: Float[Array, "block ..."], plan: _Plan) -> Float[Array, "row kv_head sample group token *rest"]:
    """Undo `_cut`."""
    x = jnp.moveaxis(x, 0, 4)
    return x.reshape(*x.shape[:4], -1, *x.shape[6:])[:, :, :, :, : plan.shape[4]]


def _at(x: Array, j: Int[Array, ""], plan: _Plan) -> Array:
    """Return block `j` of the keys."""
    return jax.lax.dynamic_slice_in_dim(x, j * plan.keys, plan.keys, axis=1)


def _add_at(x: Array, j: Int[Array, ""], plan: _Plan, more: Array) -> Array:
    """Return `x` with `more` added to block `j` of the keys."""
    return jax.lax.dynamic_update_slice_in_dim(x, _at(x, j, plan) + more, j * plan.keys, axis=1)
