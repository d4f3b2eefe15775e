"""Attention by JAX's splash kernel, on TPUs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail_model.attention.joined import Joined
from dovetail_model.attention.sight import HIDDEN, Segment

LANES: Final = 128
"""The kernel reads tokens, keys and units per head in multiples of this number."""
LARGEST: Final = 512
"""The greatest number of tokens and keys in a block."""


def splash(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    interpret: bool = False,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by `jax.experimental.pallas.ops.tpu.splash_attention`; see `dovetail_model.attention.attend`.

    The kernel's mask is the same for all rows. Therefore queries and keys are sorted by position with the padding
    first: then all rows end together, and a key n positions earlier is stored n places earlier. Segment ids keep the
    padding apart from the tokens. A shared prefix is repeated for each row that reads it.

    `interpret` runs the kernel without a TPU, for tests. The speed has not been measured on an accelerator.
    """
    seq, token, head, head_dim = queries.shape
    own = segments[-1].sight
    joined = Joined.of(segments, seq).ordered(hidden_first=True)
    at, kv_head = own.tokens.at[:, 0], joined.keys.shape[2]
    order = jnp.argsort(at, axis=1, stable=True)
    mine = jnp.take_along_axis(queries * scale, order[:, :, None, None], axis=1)
    mine = _filled(mine.reshape(seq, token, kv_head, head // kv_head, head_dim).transpose(0, 2, 3, 1, 4))
    keys, values = (_filled(x.swapaxes(1, 2).astype(queries.dtype)) for x in (joined.keys, joined.values))
    is_token = jnp.pad(jnp.take_along_axis(at, order, axis=1) >= 0, [(0, 0), (mine.shape[3] - token, 0)])
    is_key = jnp.pad(joined.at < HIDDEN, [(0, 0), (keys.shape[2] - joined.at.shape[1], 0)])
    kernel = _kernel(head // kv_head, mine.shape[3], keys.shape[2], own.window, cap, interpret)
    of_heads = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    mixed = jax.vmap(of_heads)(mine, keys, values, (is_token.astype(jnp.int32), is_key.astype(jnp.int32)))
    mixed = mixed[:, :, :, mine.shape[3] - token :, :head_dim].transpose(0, 3, 1, 2, 4).reshape(queries.shape)
    return jnp.take_along_axis(mixed, jnp.argsort(order, axis=1)[:, :, None, None], axis=1).astype(queries.dtype)


def _kernel(
    group: int, tokens: int, keys: int, window: int | None, cap: float | None, interpret: bool
) -> Callable[..., Any]:
    """Return the kernel for the query heads of one key-value head, a function of (queries, keys, values, segments)."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    shape, offset = (tokens, keys), keys - tokens
    mask = masks.CausalMask(shape, offset) if window is None else masks.LocalMask(shape, (window - 1, 0), offset)
    query, key = _block(tokens), _block(keys)
    made = kernels.make_splash_mqa(
        masks.MultiHeadMask([mask] * group),
        block_sizes=kernels.BlockSizes(
            block_q=query,
            block_kv=key,
            block_q_dkv=query,
            block_kv_dkv=key,
            block_q_dq=query,
            block_kv_dq=key,
        ),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=cap,
        interpret=interpret,
    )

    def kernel(queries: Array, keys: Array, values: Array, segments: tuple[Array, Array]) -> Array:
        found: Any = made(queries, keys, values, kernels.SegmentIds(*segments))
        return found

    return kernel


def _block(length: int) -> int:
    """Return the size of the kernel's blocks.

    >>> _block(384), _block(2048)
    (128, 512)
    """
    return math.gcd(length, LARGEST)


def _filled(x: Float[Array, "*batch token head_dim"]) -> Float[Array, "*batch token head_dim"]:
    """Pad tokens at the beginning and units at the end to multiples of `LANES`."""
    before, after = -x.shape[-2] % LANES, -x.shape[-1] % LANES
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(before, 0), (0, after)])
