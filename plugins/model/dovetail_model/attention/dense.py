"""Attention that computes all scores at once, which is fastest if they are few: for short texts and in decoding."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail_model.attention.sight import Segment, as_given, by_query, by_row, for_rows


def dense(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values; see `dovetail_model.attention.attend`.

    Segments are never concatenated and a shared segment is never repeated: products are computed segment by segment,
    and the softmax needs only the greatest score and the sum of exponentials of each. A token that sees no key gets the
    mean of all values.

    >>> from dovetail_model.attention.sight import Places, Sight
    >>> one, query, first = jnp.ones((1, 1, 2)), jnp.ones((1, 1, 1, 2)), jnp.zeros((1, 1), int)
    >>> dense(query, (Segment(one, 3 * one, Sight(Places(first[None]), Places(first))),), scale=1.0)
    Array([[[[3., 3.]]]], dtype=float32)
    """
    seq = len(queries)
    scaled = queries * scale
    if jax.default_backend() == "cpu":
        scaled = scaled.astype(jnp.float32)  # CPUs multiply in float32 anyway, and would keep both types in memory
    scores = [_scores(scaled, segment, cap) for segment in segments]
    highest = functools.reduce(jnp.maximum, (by_query(jnp.max(score, axis=-1), seq) for score in scores))
    highest = jax.lax.stop_gradient(highest)
    weights = [jnp.exp(score - by_row(highest, score.shape[0])[..., None]) for score in scores]
    total = sum(by_query(jnp.sum(weight, axis=-1), seq) for weight in weights)
    mixed = sum(
        by_query(_mix(weight, segment.values.astype(scaled.dtype)), seq)
        for weight, segment in zip(weights, segments, strict=True)
    )
    return as_given(mixed / jnp.asarray(total)[..., None], queries)


def _scores(
    queries: Float[Array, "seq token head head_dim"], segment: Segment, cap: float | None
) -> Float[Array, "row kv_head sample group token key"]:
    """Return the float32 scores of one segment, with the lowest finite number for invisible keys."""
    batch, key, head_dim = segment.keys.shape
    queries = for_rows(queries, segment)
    shape = queries.shape[:-1]
    # On CPUs, three-dimensional products with one batch entry per key-value head are fastest, forward and backward.
    queries = queries.reshape(batch, -1, head_dim)
    keys = segment.keys.astype(queries.dtype)
    scores = jnp.einsum("bqd,bsd->bqs", queries, keys, preferred_element_type=jnp.float32)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    # The lowest finite number instead of -inf, because the softmax of a row of -inf is NaN.
    visible = segment.sight.visible()[:, None, :, None]
    return jnp.where(visible, scores.reshape(*shape, key), jnp.finfo(jnp.float32).min)


def _mix(
    weights: Float[Array, "row kv_head sample group token key"], values: Float[Array, "batch key head_dim"]
) -> Float[Array, "row kv_head sample group token head_dim"]:
    flat = weights.reshape(len(values), -1, weights.shape[-1]).astype(values.dtype)
    mixed = jnp.einsum("bqs,bsd->bqd", flat, values, preferred_element_type=jnp.float32)
    return mixed.reshape(*weights.shape[:-1], -1)
