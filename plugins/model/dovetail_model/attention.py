"""Causal self-attention with grouped queries, over a row's own tokens and a prefix that it shares with other rows."""

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
    """What one forward pass shows to all layers of one kind: each token's rotation and who sees whom.

    `start` is the slot of the cache to write to; `prefix` is absent where there is none. Of `own` and `prefix`, axes
    of size 1 stand for any size. `keys` are there where dropout is wanted.
    """

    rotation: Rotation
    own: Bool[Array, "seq 1 token slot"]
    prefix: Bool[Array, "prompt sample token slot"] | None
    start: Int[Array, ""] | None
    keys: Key[Array, "seq"] | None


class Positions(NamedTuple):
    """The number of each token in its row, that of its prefix included, and the number of what each slot holds."""

    tokens: Int[Array, "seq token"]
    own: Int[Array, "seq slot"]
    prefix: Int[Array, "prompt slot"] | None


def positions(mask: Bool[Array, "seq token"], cache: Cache | None, prefix: Cache | None = None) -> Positions:
    """Number the true tokens of each row from 0, prefix first, then the cache; masked ones get a neighbour's number.

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


def visibility(mask: Bool[Array, "seq token"], cache: Cache | None) -> Bool[Array, "seq token slot"]:
    """Tell which slots each token may attend to: true tokens, not later than itself. Without a cache, slots are tokens.

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
    slots = jnp.arange(valid.shape[1], dtype=jnp.int32)
    return (slots[None, :] <= own[:, None])[None] & valid[:, None, :]


def views(
    layers: Iterable[Layer],
    head_dim: int,
    mask: Bool[Array, "seq token"],
    cache: Cache | None,
    prefix: Cache | None,
    keys: Key[Array, "seq"] | None = None,
) -> dict[Layer, View]:
    """Return what each kind of layer sees; kinds differ in the rotation and in the window.

    A window of w shows a token itself and the w - 1 true tokens before it, wherever they are stored.
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
    tokens: Int[Array, "seq token"], slots: Int[Array, "row slot"], window: int
) -> Bool[Array, "row sample token slot"]:
    """Tell which slots are fewer than `window` positions before each token."""
    rows = tokens.reshape(len(slots), -1, tokens.shape[1])
    return rows[..., None] - slots[:, None, None, :] < window


class Part(NamedTuple):
    """Some of the keys and values that tokens attend to, and which of them each token sees.

    Keys and values have an entry for each key-value head of each row. There may be fewer rows than rows of queries:
    each then serves the same number (`sample`) of consecutive ones. Axes of `visible` of size 1 stand for any size.
    """

    keys: Float[Array, "batch slot head_dim"]
    values: Float[Array, "batch slot head_dim"]
    visible: Bool[Array, "row sample token slot"]


def attend(
    queries: Float[Array, "seq token head head_dim"],
    parts: tuple[Part, ...],
    *,
    scale: float,
    cap: float | None = None,
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by the softmax of scaled products: softmax(c tanh(s Q Kᵀ / c)) V over the visible slots of all parts.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1, with each key-value head serving `head / kv_head`
    consecutive query heads (Ainslie et al. 2023, "GQA"). s is `scale`, usually 1 / √head_dim; c is `cap`, None for
    infinity (Gemma Team 2024, "Gemma 2", section 2). The softmax is float32 whatever the dtype of the inputs. A token
    that sees nothing gets the mean of all values: meaningless, and finite.

    The parts are never joined, nor a shared one repeated: products are taken part by part, and the softmax needs of
    each only its greatest score and its sum of exponentials.

    >>> one, query = jnp.ones((1, 1, 2)), jnp.ones((1, 1, 1, 2))
    >>> attend(query, (Part(one, 3 * one, jnp.ones((1, 1, 1, 1), bool)),), scale=1.0)
    Array([[[[3., 3.]]]], dtype=float32)
    """
    seq, token, head, head_dim = queries.shape
    scaled = queries * scale
    scores = [_scores(scaled, part, cap) for part in parts]
    highest = functools.reduce(jnp.maximum, (_by_query(jnp.max(score, axis=-1), seq) for score in scores))
    highest = jax.lax.stop_gradient(highest)
    weights = [jnp.exp(score - _by_row(highest, score.shape[0])[..., None]) for score in scores]
    total = sum(_by_query(jnp.sum(weight, axis=-1), seq) for weight in weights)
    mixed = sum(
        _by_query(_mix(weight, part.values.astype(queries.dtype)), seq)
        for weight, part in zip(weights, parts, strict=True)
    )
    mixed = (mixed / jnp.asarray(total)[..., None]).astype(queries.dtype)
    return mixed.reshape(seq, head, token, head_dim).swapaxes(1, 2)


def _scores(
    queries: Float[Array, "seq token head head_dim"], part: Part, cap: float | None
) -> Float[Array, "row kv_head sample group token slot"]:
    """Return the scores of one part in float32, lowest where nothing is seen."""
    seq, token, head, head_dim = queries.shape
    rows, (batch, slot, _) = part.visible.shape[0], part.keys.shape
    kv_head = batch // rows
    shape = (rows, kv_head, seq // rows, head // kv_head, token)
    queries = queries.reshape(rows, seq // rows, token, kv_head, -1, head_dim).transpose(0, 3, 1, 4, 2, 5)
    # Three-dimensional products, a batch entry for each key-value head: the fastest form on CPUs, forward and backward.
    queries = queries.reshape(batch, -1, head_dim)
    keys = part.keys.astype(queries.dtype)
    scores = jnp.einsum("bqd,bsd->bqs", queries, keys, preferred_element_type=jnp.float32)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    # The lowest finite number, not -inf: a row of -inf has a softmax of NaN.
    return jnp.where(part.visible[:, None, :, None], scores.reshape(*shape, slot), jnp.finfo(jnp.float32).min)


def _mix(
    weights: Float[Array, "row kv_head sample group token slot"], values: Float[Array, "batch slot head_dim"]
) -> Float[Array, "row kv_head sample group token head_dim"]:
    flat = weights.reshape(len(values), -1, weights.shape[-1]).astype(values.dtype)
    mixed = jnp.einsum("bqs,bsd->bqd", flat, values, preferred_element_type=jnp.float32)
    return mixed.reshape(*weights.shape[:-1], -1)


def by_head(x: Float[Array, "seq token kv_head head_dim"]) -> Float[Array, "batch token head_dim"]:
    """Put the heads of each row one after another on the first axis, as keys and values are kept."""
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
        parts = (Part(*present, view.own),)
        if prefix is not None and view.prefix is not None:
            parts = (Part(*prefix, view.prefix), *parts)
        mixed = attend(queries, parts, scale=self.scale, cap=self.cap)
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
