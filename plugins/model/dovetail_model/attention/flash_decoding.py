"""Attention of a single token per row by a fused kernel, on NVIDIA's devices."""

from __future__ import annotations

import importlib.util
from typing import Final

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dovetail_model.attention.sight import Segment, as_given

BLOCK: Final = 64
"""Keys that a program reads at a time."""
PROGRAMS: Final = 264
"""Rows and heads up to which the keys of each are divided among programs: two for each multiprocessor of an H200."""
UNITS: Final = (16, 32, 64, 128, 256)
"""The numbers of units per head for which there is a kernel."""


def has_kernel() -> bool:
    """Return whether this JAX can compile the kernel, which is written for Pallas' Triton backend.

    JAX 0.11 deprecates that backend; where it is gone, decoding is dense.
    """
    return importlib.util.find_spec("jax.experimental.pallas.triton") is not None


def flash_decoding(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    interpret: bool = False,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values for one token per row; see `dovetail_model.attention.attend`.

    One kernel reads the keys and values of all segments in blocks, and writes no scores to memory. Blocks before the
    first visible key and after the last one are not read. Where there are few rows, several programs divide the keys of
    a row, and their results are merged (Dao et al. 2023, "Flash-Decoding for long-context inference").

    There is no backward pass. The result of a token that sees no key is zero. `interpret` runs the kernel without a
    GPU, for tests.
    """
    from dovetail_model.attention.decoding_kernel import Held, mix

    seq, token, head, head_dim = queries.shape
    assert token == 1, "the kernel reads one token per row"
    kv_heads = segments[-1].kv_heads
    by_head = queries.reshape(seq * kv_heads, head // kv_heads, head_dim) * jnp.asarray(scale, queries.dtype)
    seen = [_seen(segment) for segment in segments]
    held = [Held(part.keys, part.values, mask, _bounds(mask)) for part, mask in zip(segments, seen, strict=True)]
    blocks = sum(-(-part.keys.shape[1] // BLOCK) for part in segments)
    splits = max(1, min(PROGRAMS // len(by_head), blocks))
    parts = mix(by_head, held, kv_heads, cap, block=BLOCK, splits=splits, interpret=interpret)
    mixed = parts[0][0] if splits == 1 else _merged(*parts)
    return as_given(mixed.reshape(seq, kv_heads, -1, 1, head_dim), queries)


def _merged(
    mixed: Float[Array, "split batch group head_dim"],
    highest: Float[Array, "split batch group"],
    total: Float[Array, "split batch group"],
) -> Float[Array, "batch group head_dim"]:
    """Return the mixed values of all splits, each of which has its greatest score and its sum of exponentials."""
    share = jnp.exp(highest - jnp.max(highest, axis=0, keepdims=True))
    total = jnp.sum(total * share, axis=0)
    return jnp.sum(mixed * share[..., None], axis=0) / jnp.where(total > 0, total, 1.0)[..., None]


def _seen(segment: Segment) -> Int[Array, "mask key"]:
    """Return which keys are visible, in as many rows as there are different ones."""
    visible = segment.sight.visible()
    return visible.reshape(-1, visible.shape[-1]).astype(jnp.int8)


def _bounds(seen: Int[Array, "mask key"]) -> Int[Array, "mask 2"]:
    """Return the first block with a visible key, and the one after the last.

    >>> _bounds(jnp.zeros((2, 200), jnp.int8).at[0, 70:90].set(1)).tolist()
    [[1, 2], [0, 0]]
    """
    some, keys = jnp.any(seen > 0, axis=1, keepdims=True), seen.shape[1]
    first, last = jnp.argmax(seen > 0, axis=1), keys - jnp.argmax(seen[:, ::-1] > 0, axis=1)
    return jnp.where(some, jnp.stack([first // BLOCK, -(-last // BLOCK)], axis=1), 0).astype(jnp.int32)
