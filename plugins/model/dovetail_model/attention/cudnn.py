"""Attention by cuDNN's fused kernels, on NVIDIA's devices."""

from __future__ import annotations

from typing import Final, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_model.attention.joined import Joined
from dovetail_model.attention.sight import Segment

PAIRS: Final = 1 << 20
"""The greatest number of pairs of a token and a key in a row for which the kernel reads a mask, of 2 MiB per row."""

IN_ORDER: Final = "cudnn in order"
"""The name of the implementation that never has a mask; traces are kept by this name."""

Library = Literal["cudnn", "xla"]


def has_mask(tokens: int, keys: int) -> bool:
    """Return whether rows of so many tokens and keys may be computed with a mask."""
    return tokens * keys <= PAIRS


def cudnn(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    library: Library = "cudnn",
    in_order: bool = False,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by `jax.nn.dot_product_attention`; see `dovetail_model.attention.attend`.

    Short rows have a mask of all pairs. Longer ones are put in order, and their memory is linear in their length. A
    shared prefix is repeated for each row that reads it. Numbers of tokens and keys are padded to even ones, since JAX
    refuses to train with others.

    `in_order` puts short rows in order too, for runs that are computed under `jax.vmap`: there JAX 0.12 refuses a mask
    that is the same for all heads. `library` 'xla' computes the same without the kernel, for tests on other devices.
    """
    assert cap is None, "cuDNN's kernel has no soft cap"
    keys = sum(segment.keys.shape[1] for segment in segments)
    compute = _with_mask if not in_order and has_mask(queries.shape[1], keys) else _in_order
    return compute(queries, segments, scale, library)


def _with_mask(
    queries: Float[Array, "seq token head head_dim"], segments: tuple[Segment, ...], scale: float, library: Library
) -> Float[Array, "seq token head head_dim"]:
    seq, token = queries.shape[:2]
    joined = Joined.of(segments, seq).padded(2)
    seen = jnp.concatenate([_seen(segment, seq, token) for segment in segments], axis=2)
    more = token % 2
    mask = jnp.pad(seen, ((0, 0), (0, more), (0, joined.at.shape[1] - seen.shape[2])))
    mixed = jax.nn.dot_product_attention(
        jnp.pad(queries, ((0, 0), (0, more), (0, 0), (0, 0))),
        joined.keys.astype(queries.dtype),
        joined.values.astype(queries.dtype),
        mask=mask[:, None],
        scale=scale,
        implementation=library,
    )
    return mixed[:, :token]


def _seen(segment: Segment, seq: int, token: int) -> Bool[Array, "seq token key"]:
    """Return which keys of a segment the tokens of each row of queries see."""
    seen = segment.sight.visible()
    rows, _, _, keys = seen.shape
    return jnp.broadcast_to(seen, (rows, seq // rows, token, keys)).reshape(seq, token, keys)


def _in_order(
    queries: Float[Array, "seq token head head_dim"], segments: tuple[Segment, ...], scale: float, library: Library
) -> Float[Array, "seq token head head_dim"]:
    """Mix values in rows without gaps, with queries and keys at the same positions.

    Keys are sorted by position with padding last, queries are placed at their positions among the keys, and lengths
    mark the ends of rows. The queries at the positions of a prefix are computed in vain.
    """
    own = segments[-1].sight
    seq, window, at = len(queries), own.window, own.tokens.at[:, 0]
    joined = Joined.of(segments, seq).ordered(hidden_first=False).padded(2)
    rows, end = jnp.arange(seq)[:, None], joined.at.shape[1]
    # tokens placed at `end` are dropped: they are masked and see nothing
    placed = jnp.zeros((seq, end, *queries.shape[2:]), queries.dtype)
    placed = placed.at[rows, jnp.where(at < 0, end, at)].set(queries, mode="drop")
    lengths = jnp.maximum(joined.lengths(), 1)
    mixed = jax.nn.dot_product_attention(
        placed,
        joined.keys.astype(queries.dtype),
        joined.values.astype(queries.dtype),
        scale=scale,
        is_causal=True,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        local_window_size=None if window is None else (window - 1, 0),
        implementation=library,
    )
    return mixed[rows, jnp.maximum(at, 0)]
