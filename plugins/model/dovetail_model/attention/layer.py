"""The attention layer: projections, rotation, attention, and the product that writes to the residual stream."""

from __future__ import annotations

import functools

from flax import nnx
from jaxtyping import Array, Float

from dovetail_model.attention.attend import attend
from dovetail_model.attention.over_devices import by_seq, by_token
from dovetail_model.attention.sight import Segment, by_head
from dovetail_model.attention.view import View
from dovetail_model.cache import KeyValues
from dovetail_model.layers.linear import Linear
from dovetail_model.layers.norm import RMSNorm
from dovetail_model.layers.rope import rotate
from dovetail_model.spec import Spec


class Attention(nnx.Module):
    """Self-attention with rotary positions (or none) and grouped queries, on one row per token."""

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
        self.query_norm = _head_norm(spec, spec.heads)
        self.key_norm = _head_norm(spec, spec.kv_heads)

    def __call__(
        self, x: Float[Array, "row width"], view: View, past: KeyValues | None, prefix: KeyValues | None
    ) -> tuple[Float[Array, "row width"], KeyValues]:
        """Return the layer's contribution to the residual stream, and the row's own keys and values."""
        seq = len(view.own.keys.at)
        queries, keys, values = (
            project(x, view.keys).reshape(len(x), -1, self.head_dim)
            for project in (self.queries, self.keys, self.values)
        )
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = _normed(queries, self.query_norm), _normed(keys, self.key_norm)
        if view.rotation is not None:
            queries, keys = rotate(queries, view.rotation), rotate(keys, view.rotation)
        queries, keys, values = (by_seq(y, seq, view.parts) for y in (queries, keys, values))
        present = KeyValues(by_head(keys), by_head(values))
        if past is not None and view.start is not None:
            present = past.write(present, view.start)
        segments = (Segment(*present, view.own),)
        if prefix is not None and view.prefix is not None:
            segments = (Segment(*prefix, view.prefix), *segments)
        mixed = attend(queries, segments, scale=self.scale, cap=self.cap, how=view.how, parts=view.parts)
        return self.out(by_token(mixed, view.parts).reshape(len(x), -1), view.keys), present


def _normed(x: Float[Array, "row head head_dim"], norm: RMSNorm) -> Float[Array, "row head head_dim"]:
    """Normalise each head, or all heads together, depending on the width of the norm."""
    return norm(x.reshape(len(x), -1, norm.width)).reshape(x.shape)


def _head_norm(spec: Spec, heads: int) -> RMSNorm | None:
    if not spec.qk_norm:
        return None
    return RMSNorm(
        spec.head_dim * (heads if spec.qk_norm_over == "heads" else 1),
        axis=None,
        epsilon=spec.norm_epsilon,
        offset=spec.norm_offset,
        param_dtype=spec.param_dtype,
    )
