"""Causal self-attention with grouped queries, over a row's own tokens and a prefix shared with other rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail_model.cache import Cache, KeyValues
from dovetail_model.layers.linear import Linear
from dovetail_model.layers.norm import RMSNorm
from dovetail_model.layers.rope import Rotation, rotate, rotation
from dovetail_model.spec import Layer, Spec


class View(NamedTuple):
    """What all layers of one kind share in a forward pass: each token's rotation, and which keys it may attend to.

    `start` is the position of the cache to write to. Axes of size 1 in `own` and `prefix` stand for any size. `keys`
    are given if there is dropout.
    """

    rotation: Rotation
    own: Bool[Array, "seq 1 token key"]
    prefix: Bool[Array, "prompt sample token key"] | None
    start: Int[Array, ""] | None
    keys: Key[Array, "seq"] | None


class Positions(NamedTuple):
    """The index of each token in its row, prefix included, and the index of what each key holds."""

    tokens: Int[Array, "seq token"]
    own: Int[Array, "seq key"]
    prefix: Int[Array, "prompt key"] | None


def positions(mask: Bool[Array, "seq token"], cache: Cache | None, prefix: Cache | None = None) -> Positions:
    """Number the true tokens of each row from 0: prefix, cache, then new tokens. Masked ones get a neighbour's number.

    >>> positions(jnp.array([[False, True, True]]), None).tokens
    Array([[0, 0, 1]], dtype=int32)
    """
    before = jnp.zeros((len(mask), 1), jnp.int32)
    if prefix is not None:
        lengths = jnp.sum(prefix.valid, axis=1, keepdims=True, dtype=jnp.int32)
        before = jnp.repeat(lengths, len(mask) // len(lengths), axis=0)
    own = before + _count(mask if cache is None else cache.validity(mask))
    tokens = own
    if cache is not None:
        tokens = before + jnp.sum(cache.valid, axis=1, keepdims=True, dtype=jnp.int32) + _count(mask)
    return Positions(jnp.maximum(tokens, 0), own, None if prefix is None else _count(prefix.valid))


def _count(mask: Bool[Array, "seq token"]) -> Int[Array, "seq token"]:
    return jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1


def visibility(mask: Bool[Array, "seq token"], cache: Cache | None) -> Bool[Array, "seq token key"]:
    """Tell which keys each token may attend to: those of true tokens up to itself, in the cache if there is one.

    >>> visibility(jnp.array([[False, True, True]]), None).astype(int)
    Array([[[0, 0, 0],
            [0, 1, 0],
            [0, 1, 1]]], dtype=int32)
    """
    own = jnp.arange(mask.shape[1], dtype=jnp.int32)
    if cache is None:
        valid = mask
    else:
        own += cache.filled
        valid = cache.validity(mask)
    keys = jnp.arange(valid.shape[1], dtype=jnp.int32)
    return (keys[None, :] <= own[:, None])[None] & valid[:, None, :]


def views(
    layers: Iterable[Layer],
    head_dim: int,
    mask: Bool[Array, "seq token"],
    cache: Cache | None,
    prefix: Cache | None,
    keys: Key[Array, "seq"] | None = None,
) -> dict[Layer, View]:
    """Return the view of each kind of layer; kinds differ in their rotation and window.

    With a window of w a token sees itself and the w - 1 true tokens before it, wherever they are stored.
    """
    at = positions(mask, cache, prefix)
    own = visibility(mask, cache)[:, None]
    shared = None if prefix is None else prefix.valid[:, None, None, :]
    start = None if cache is None else cache.filled

    def view(layer: Layer) -> View:
        turned = rotation(at.tokens.reshape(-1), layer.rope.frequencies(head_dim))
        if layer.window is None:
            return View(turned, own, shared, start, keys)
        near = _near(at.tokens, at.own, layer.window) & own
        far = None if shared is None or at.prefix is None else _near(at.tokens, at.prefix, layer.window) & shared
        return View(turned, near, far, start, keys)

    return {layer: view(layer) for layer in dict.fromkeys(layers)}


def _near(
    tokens: Int[Array, "seq token"], keys: Int[Array, "row key"], window: int
) -> Bool[Array, "row sample token key"]:
    """Tell which keys are fewer than `window` positions before each token."""
    rows = tokens.reshape(len(keys), -1, tokens.shape[1])
    return rows[..., None] - keys[:, None, None, :] < window


class Segment(NamedTuple):
    """Keys and values that are stored together (a prefix, or a row's own), and which of them each token sees.

    Keys and values have an entry for each key-value head of each row. With fewer rows than the queries have, each row
    serves the same number (`sample`) of consecutive ones. Axes of size 1 in `visible` stand for any size.
    """

    keys: Float[Array, "batch key head_dim"]
    values: Float[Array, "batch key head_dim"]
    visible: Bool[Array, "row sample token key"]


def attend(
    queries: Float[Array, "seq token head head_dim"],
    segments: tuple[Segment, ...],
    *,
    scale: float,
    cap: float | None = None,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by the softmax of scaled products: softmax(c tanh(s Q Kᵀ / c)) V over all visible keys.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1, with each key-value head serving `head / kv_head`
    consecutive query heads (Ainslie et al. 2023, "GQA"). s is `scale`, usually 1 / √head_dim; c is `cap`, None for
    infinity (Gemma Team 2024, "Gemma 2", section 2). The softmax is float32 whatever the dtype of the inputs. A token
    that sees nothing gets the mean of all values, which is meaningless but finite.

    Segments are never concatenated, and a shared one is never repeated: products are taken segment by segment, and the
    softmax needs only the greatest score and the sum of exponentials of each.

    >>> one, query = jnp.ones((1, 1, 2)), jnp.ones((1, 1, 1, 2))
    >>> attend(query, (Segment(one, 3 * one, jnp.ones((1, 1, 1, 1), bool)),), scale=1.0)
    Array([[[[3., 3.]]]], dtype=float32)
    """
    seq, token, head, head_dim = queries.shape
    scaled = queries * scale
    scores = [_scores(scaled, segment, cap) for segment in segments]
    highest = functools.reduce(jnp.maximum, (_by_query(jnp.max(score, axis=-1), seq) for score in scores))
    highest = jax.lax.stop_gradient(highest)
    weights = [jnp.exp(score - _by_row(highest, score.shape[0])[..., None]) for score in scores]
    total = sum(_by_query(jnp.sum(weight, axis=-1), seq) for weight in weights)
    mixed = sum(
        _by_query(_mix(weight, segment.values.astype(queries.dtype)), seq)
        for weight, segment in zip(weights, segments, strict=True)
    )
    mixed = (mixed / jnp.asarray(total)[..., None]).astype(queries.dtype)
    return mixed.reshape(seq, head, token, head_dim).swapaxes(1, 2)


def _scores(
    queries: Float[Array, "seq token head head_dim"], segment: Segment, cap: float | None
) -> Float[Array, "row kv_head sample group token key"]:
    """Return the scores of one segment in float32, the lowest number where a key is not visible."""
    seq, token, head, head_dim = queries.shape
    rows, (batch, key, _) = segment.visible.shape[0], segment.keys.shape
    kv_head = batch // rows
    shape = (rows, kv_head, seq // rows, head // kv_head, token)
    queries = queries.reshape(rows, seq // rows, token, kv_head, -1, head_dim).transpose(0, 3, 1, 4, 2, 5)
    # Three-dimensional products, one batch entry per key-value head, are fastest on CPUs, forward and backward.
    queries = queries.reshape(batch, -1, head_dim)
    keys = segment.keys.astype(queries.dtype)
    scores = jnp.einsum("bqd,bsd->bqs", queries, keys, preferred_element_type=jnp.float32)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    # The lowest finite number, not -inf: a row of -inf has a softmax of NaN.
    return jnp.where(segment.visible[:, None, :, None], scores.reshape(*shape, key), jnp.finfo(jnp.float32).min)


def _mix(
    weights: Float[Array, "row kv_head sample group token key"], values: Float[Array, "batch key head_dim"]
) -> Float[Array, "row kv_head sample group token head_dim"]:
    flat = weights.reshape(len(values), -1, weights.shape[-1]).astype(values.dtype)
    mixed = jnp.einsum("bqs,bsd->bqd", flat, values, preferred_element_type=jnp.float32)
    return mixed.reshape(*weights.shape[:-1], -1)


def by_head(x: Float[Array, "seq token kv_head head_dim"]) -> Float[Array, "batch token head_dim"]:
    """Put the heads of each row one after another on the first axis, which is how keys and values are stored."""
    return x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])


def _by_query(x: Float[Array, "row kv_head sample *rest"], seq: int) -> Float[Array, "seq kv_head *rest"]:
    return x.swapaxes(1, 2).reshape(seq, x.shape[1], *x.shape[3:])


def _by_row(x: Float[Array, "seq kv_head *rest"], rows: int) -> Float[Array, "row kv_head sample *rest"]:
    return x.reshape(rows, -1, *x.shape[1:]).swapaxes(1, 2)


class Attention(nnx.Module):
    """Self-attention with rotary positions and grouped queries, on one row per token."""

    def __init__(self, spec: Spec, *, rngs: nnx.Rngs) -> None:
        self.head_dim = spec.head_dim
        self.scale = spec.head_dim**-0.5 if spec.query_scale is None else spec.query_scale
        self.cap = spec.attention_cap
        linear = functools.partial(Linear, param_dtype=spec.param_dtype, rngs=rngs)
        into = functools.partial(linear, spec.width, bias=spec.qkv_bias, std=spec.init_std)
        self.queries = into(spec.heads * spec.head_dim, axes=("width", "heads"))
        self.keys = into(spec.kv_heads * spec.head_dim, axes=("width", "kv_heads"))
        self.values = into(spec.kv_heads * spec.head_dim, axes=("width", "kv_heads"))
        self.out = linear(
            spec.heads * spec.head_dim,
            spec.width,
            axes=("heads", "width"),
            bias=spec.out_bias,
            std=spec.init_std if spec.out_std is None else spec.out_std,
        )
        self.query_norm = _head_norm(spec)
        self.key_norm = _head_norm(spec)

    def __call__(
        self, x: Float[Array, "row width"], view: View, past: KeyValues | None, prefix: KeyValues | None
    ) -> tuple[Float[Array, "row width"], KeyValues]:
        """Return the layer's contribution to the residual stream, and the row's own keys and values."""
        seq = view.own.shape[0]
        queries, keys, values = (
            project(x, view.keys).reshape(len(x), -1, self.head_dim)
            for project in (self.queries, self.keys, self.values)
        )
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        queries, keys = rotate(queries, view.rotation), rotate(keys, view.rotation)
        queries, keys, values = (y.reshape(seq, -1, *y.shape[1:]) for y in (queries, keys, values))
        present = KeyValues(by_head(keys), by_head(values))
        if past is not None and view.start is not None:
            present = past.write(present, view.start)
        segments = (Segment(*present, view.own),)
        if prefix is not None and view.prefix is not None:
            segments = (Segment(*prefix, view.prefix), *segments)
        mixed = attend(queries, segments, scale=self.scale, cap=self.cap)
        return self.out(mixed.reshape(len(x), -1), view.keys), present


def _head_norm(spec: Spec) -> RMSNorm | None:
    if not spec.qk_norm:
        return None
    return RMSNorm(
        spec.head_dim,
        axis=None,
        epsilon=spec.norm_epsilon,
        offset=spec.norm_offset,
        param_dtype=spec.param_dtype,
    )
