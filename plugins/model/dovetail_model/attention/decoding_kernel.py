"""The kernel behind `flash_decoding`, in the language of Pallas and its Triton backend.

A program mixes the values of a part of the keys for all queries of one row and key-value head.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

LEAST: Final = 16
"""The least number of queries in a matrix product of a GPU's; others are added in vain."""
WARPS, STAGES = 4, 3
"""Groups of 32 threads in a program, and blocks of keys that are on their way at a time: within 2 % of the
fastest choice on an H200 with 128 rows of up to 512 keys, in heads of 64 and 128 units."""
LOWEST: Final = float(jnp.finfo(jnp.float32).min)


class Held(NamedTuple):
    """A segment: keys and values of each row and head, which keys are visible, and the blocks with visible ones.

    There may be fewer rows of keys than of queries, and fewer of masks: each serves consecutive rows of queries.
    """

    keys: Float[Array, "held key head_dim"]
    values: Float[Array, "held key head_dim"]
    seen: Int[Array, "mask key"]
    bounds: Int[Array, "mask 2"]


def mix(
    queries: Float[Array, "batch group head_dim"],
    held: Sequence[Held],
    kv_heads: int,
    cap: float | None,
    *,
    block: int,
    splits: int,
    interpret: bool = False,
) -> tuple[Array, ...]:
    """Return the mixed values; `batch` is rows times key-value heads.

    With one split that is [1, batch, group, head_dim] in the type of the queries. With several, the result is their
    unnormalised [split, batch, group, head_dim], greatest scores and sums of exponentials, [split, batch, group], in
    float32; blocks of keys are divided among the splits in order.
    """
    batch, group, head_dim = queries.shape
    padded = max(LEAST, 1 << (group - 1).bit_length())
    blocks = sum(pl.cdiv(part.keys.shape[1], block) for part in held)
    specs = [pl.BlockSpec((None, padded, head_dim), lambda i, j: (i, 0, 0))]
    for part in held:
        specs += _specs(part, batch, kv_heads)
    outs = [((head_dim,), queries.dtype)] if splits == 1 else [((head_dim,), jnp.float32), *[((), jnp.float32)] * 2]
    return pl.pallas_call(
        functools.partial(_kernel, parts=len(held), block=block, each=pl.cdiv(blocks, splits), group=group, cap=cap),
        grid=(batch, splits),
        in_specs=specs,
        out_specs=[_of_split((padded, *units)) for units, _ in outs],
        out_shape=[jax.ShapeDtypeStruct((splits, batch, group, *units), dtype) for units, dtype in outs],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
        name="flash_decoding",
    )(queries, *(array for part in held for array in part))


def _specs(part: Held, batch: int, kv_heads: int) -> list[pl.BlockSpec]:
    """Return which part of a segment's arrays a program reads."""
    rows, (keys, head_dim) = batch // kv_heads, part.keys.shape[1:]
    per_keys, per_mask = rows * kv_heads // len(part.keys), rows // len(part.seen)

    def of_head(i: Any, j: Any) -> Any:
        return i // kv_heads // per_keys * kv_heads + i % kv_heads, 0, 0

    def of_mask(i: Any, j: Any) -> Any:
        return i // kv_heads // per_mask, 0

    held = pl.BlockSpec((None, keys, head_dim), of_head)
    return [held, held, pl.BlockSpec((None, keys), of_mask), pl.BlockSpec((None, 2), of_mask)]


def _of_split(shape: tuple[int, ...]) -> pl.BlockSpec:
    """Return the part of a result that a program writes."""
    return pl.BlockSpec((None, None, *shape), lambda i, j: (j, i, *[0] * len(shape)))


def _kernel(queries_ref: Any, *refs: Any, parts: int, block: int, each: int, group: int, cap: float | None) -> None:
    """Mix the values of `each` blocks of keys; the blocks of all segments are counted in order."""
    arrays = len(Held._fields)
    held = [Held(*refs[arrays * number :][:arrays]) for number in range(parts)]
    mixed_ref, *sums = refs[arrays * parts :]
    padded, head_dim = queries_ref.shape
    is_query, everything = jnp.arange(padded) < group, (pl.ds(0, padded), pl.ds(0, head_dim))
    queries = triton.load(queries_ref.at[everything], mask=is_query[:, None], other=0.0)
    first = pl.program_id(1) * each
    state = (
        jnp.zeros((padded, head_dim), jnp.float32),
        jnp.full((padded,), LOWEST, jnp.float32),
        jnp.zeros((padded,), jnp.float32),
    )
    for part in held:
        lower, upper = jnp.maximum(part.bounds[0], first), jnp.minimum(part.bounds[1], first + each)
        state = jax.lax.fori_loop(lower, upper, functools.partial(_add, queries, part, block, cap), state)
        first -= pl.cdiv(part.keys.shape[0], block)
    mixed, highest, total = state
    if not sums:
        mixed = mixed / jnp.where(total > 0, total, 1.0)[:, None]
    triton.store(mixed_ref.at[everything], mixed.astype(mixed_ref.dtype), mask=is_query[:, None])
    for ref, one in zip(sums, (highest, total), strict=False):  # with one split there are none
        triton.store(ref.at[pl.ds(0, padded)], one, mask=is_query)


def _add(queries: Array, part: Any, block: int, cap: float | None, number: Any, state: Any) -> Any:
    """Add a block of keys to the mixed values, with the greatest score so far in place of the greatest of all."""
    mixed, highest, total = state
    end, head_dim = part.keys.shape
    rows = pl.ds(number * block, block)
    there = number * block + jnp.arange(block) < end

    def of_keys(ref: Any) -> Array:
        return triton.load(ref.at[rows, pl.ds(0, head_dim)], mask=there[:, None], other=0.0).astype(queries.dtype)

    seen = triton.load(part.seen.at[rows], mask=there, other=0) > 0
    scores = jnp.dot(queries, of_keys(part.keys).T, preferred_element_type=jnp.float32)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    scores = jnp.where(seen[None, :], scores, LOWEST)
    above = jnp.maximum(highest, jnp.max(scores, axis=1))
    share, weights = jnp.exp(highest - above), jnp.exp(scores - above[:, None])
    values = jnp.dot(weights.astype(queries.dtype), of_keys(part.values), preferred_element_type=jnp.float32)
    return mixed * share[:, None] + values, above, total * share + jnp.sum(weights, axis=1)
