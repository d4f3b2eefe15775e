"""Attention by cuDNN's fused kernels, on NVIDIA's devices."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail_model.attention.joined import Joined
from dovetail_model.attention.sight import Segment


def cudnn(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
    library: Literal["cudnn", "xla"] = "cudnn",
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by `jax.nn.dot_product_attention`; see `dovetail_model.attention.attend`.

    The kernel needs rows without gaps, with queries and keys at the same positions. Therefore keys are sorted by
    position with padding last, queries are placed at their positions among the keys, and lengths mark the ends of rows.
    Rows have an even number of places, since JAX refuses to train with others. A shared prefix is repeated for each row
    that reads it; the queries at its positions are computed in vain.

    `library` 'xla' computes the same without the kernel, for tests on other devices. The speed has not been measured on
    an accelerator.
    """
    assert cap is None, "cuDNN's kernel has no soft cap"
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
