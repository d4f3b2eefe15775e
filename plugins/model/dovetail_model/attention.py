"""Causal self-attention with grouped queries."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from dovetail_model.cache import Cache, KeyValues
from dovetail_model.layers.linear import Linear
from dovetail_model.layers.rope import Rotation, rotate


class Window(NamedTuple):
    """What all layers of one forward pass share: the rotation of each token, who sees whom, and where to write."""

    rotation: Rotation
    visible: Bool[Array, "seq token slot"]
    start: Int[Array, ""] | None


def positions(mask: Bool[Array, "seq token"], cache: Cache | None) -> Int[Array, "seq token"]:
    """Number the true tokens of each row from 0, after those in the cache; masked tokens get a neighbour's number.

    >>> positions(jnp.array([[False, True, True]]), None)
    Array([[0, 0, 1]], dtype=int32)
    """
    counts = jnp.cumsum(mask, axis=1, dtype=jnp.int32)
    if cache is not None:
        counts += jnp.sum(cache.valid, axis=1, keepdims=True, dtype=jnp.int32)
    return jnp.maximum(counts - 1, 0)


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


def attend(
    queries: Float[Array, "seq token head head_dim"],
    keys: Float[Array, "seq slot kv_head head_dim"],
    values: Float[Array, "seq slot kv_head head_dim"],
    visible: Bool[Array, "seq token slot"],
) -> Float[Array, "seq token head head_dim"]:
    """Mix values by the softmax of scaled products: softmax(Q Kᵀ / √head_dim) V over the visible slots.

    Vaswani et al. 2017, "Attention Is All You Need", equation 1, with each key-value head serving `head / kv_head`
    consecutive query heads (Ainslie et al. 2023, "GQA"). The softmax is float32 whatever the dtype of the inputs. A
    token that sees nothing gets the mean of all values: meaningless, and finite.

    >>> one = jnp.ones((1, 1, 1, 2))
    >>> attend(one, one, 3 * one, jnp.ones((1, 1, 1), bool))
    Array([[[[3., 3.]]]], dtype=float32)
    """
    seq, token, head, head_dim = queries.shape
    slot, kv_head = keys.shape[1:3]
    group = head // kv_head
    # Three-dimensional products, a batch entry for each key-value head: the fastest form on CPUs, forward and backward.
    batch = seq * kv_head
    queries = queries.reshape(seq, token, kv_head, group, head_dim).transpose(0, 2, 3, 1, 4)
    queries = (queries * head_dim**-0.5).reshape(batch, group * token, head_dim)
    keys, values = (x.swapaxes(1, 2).reshape(batch, slot, head_dim) for x in (keys, values))
    scores = jnp.einsum("bqd,bsd->bqs", queries, keys, preferred_element_type=jnp.float32)
    scores = scores.reshape(seq, kv_head * group, token, slot)
    # The lowest finite number, not -inf: a row of -inf has a softmax of NaN.
    scores = jnp.where(visible[:, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype).reshape(batch, group * token, slot)
    mixed = jnp.einsum("bqs,bsd->bqd", weights, values)
    return mixed.reshape(seq, head, token, head_dim).swapaxes(1, 2)


class Attention(nnx.Module):
    """Self-attention with rotary positions and grouped queries, on one row per token."""

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        std: float,
        out_std: float,
        param_dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        self.head_dim = head_dim
        self.queries = Linear(width, heads * head_dim, std=std, param_dtype=param_dtype, rngs=rngs)
        self.keys = Linear(width, kv_heads * head_dim, std=std, param_dtype=param_dtype, rngs=rngs)
        self.values = Linear(width, kv_heads * head_dim, std=std, param_dtype=param_dtype, rngs=rngs)
        self.out = Linear(heads * head_dim, width, std=out_std, param_dtype=param_dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "row width"], window: Window, past: KeyValues | None
    ) -> tuple[Float[Array, "row width"], KeyValues]:
        """Return the layer's contribution to the residual stream, and the keys and values it attended to."""
        seq, token = window.visible.shape[:2]
        queries, keys, values = (
            project(x).reshape(seq * token, -1, self.head_dim) for project in (self.queries, self.keys, self.values)
        )
        queries, keys = rotate(queries, window.rotation), rotate(keys, window.rotation)
        queries, keys, values = (y.reshape(seq, token, -1, self.head_dim) for y in (queries, keys, values))
        present = KeyValues(keys, values)
        if past is not None and window.start is not None:
            present = past.write(present, window.start)
        mixed = attend(queries, *present, window.visible)
        return self.out(mixed.reshape(seq * token, -1)), present
