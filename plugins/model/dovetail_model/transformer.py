"""The decoder behind every architecture."""

from __future__ import annotations

import functools
from typing import Any, cast

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from dovetail.devices.mesh import TOKENS, parts_of, rows_cut
from dovetail.errors import ConfigError
from dovetail_model.attention import Attention, View, views
from dovetail_model.attention.blockwise import SAVED
from dovetail_model.attention.choice import Shapes, choose
from dovetail_model.attention.over_devices import by_seq, by_token, dealt, handed_back
from dovetail_model.cache import Cache, KeyValues, empty_cache
from dovetail_model.layers.glu import GLU
from dovetail_model.layers.head import scores
from dovetail_model.layers.low_rank import LowRank
from dovetail_model.layers.mixture import Mixture
from dovetail_model.layers.norm import RMSNorm
from dovetail_model.layers.remat import recomputed
from dovetail_model.spec import Spec

_ATTENDED = jax.checkpoint_policies.save_only_these_names(SAVED)
POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.save_from_both_policies(jax.checkpoint_policies.dots_saveable, _ATTENDED),
    "dots_no_batch": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, _ATTENDED
    ),
}


class Block(nnx.Module):
    """An attention layer and a feed-forward layer, each normalised before or after and added to the residual stream."""

    def __init__(self, spec: Spec, number: int, *, rngs: nnx.Rngs) -> None:
        self.scale = spec.residual_scale
        self.attention_norm = _norm(spec) if spec.pre_norms else None
        self.attention = Attention(spec, rngs=rngs)
        self.attention_post_norm = _norm(spec) if spec.post_norms else None
        self.ffn_norm = _norm(spec) if spec.pre_norms else None
        self.ffn = _ffn(spec, number, rngs)
        self.ffn_post_norm = _norm(spec) if spec.post_norms else None

    def __call__(
        self,
        x: Float[Array, "row width"],
        view: View,
        past: KeyValues | None,
        prefix: KeyValues | None,
        given: Int[Array, "row choice"] | None = None,
    ) -> tuple[Float[Array, "row width"], KeyValues, Int[Array, "row choice"] | None]:
        """Return the residual stream after this block, the row's own keys and values, and the choices of experts."""
        mixed, present = self.attention(_normed(x, self.attention_norm), view, past, prefix)
        x = x + self._scaled(_normed(mixed, self.attention_post_norm))
        inputs = _normed(x, self.ffn_norm)
        chosen = None
        if isinstance(self.ffn, Mixture):
            gated, chosen = self.ffn(inputs, given)
        else:
            gated = self.ffn(inputs, view.keys)
        return x + self._scaled(_normed(gated, self.ffn_post_norm)), present, chosen

    def _scaled(self, change: Float[Array, "row width"]) -> Float[Array, "row width"]:
        return change if self.scale == 1 else change * jnp.asarray(self.scale, change.dtype)


class Transformer(nnx.Module):
    """The decoder that a `Spec` describes; `dovetail.protocols.LanguageModel` documents its methods.

    Activations are 2-D, one row per token, and layers are unrolled: on CPUs this is faster than [seq, token, width] and
    a scan (`benchmarks/choices.py`; not measured on an accelerator). Every array is a plain `nnx.Param`, so `nnx.split`
    gives a state that can be jitted, donated, sharded and checkpointed, and models of the same spec have equal graph
    definitions and share executables.
    """

    def __init__(self, spec: Spec, *, rngs: nnx.Rngs) -> None:
        self.spec = spec
        self.width = spec.width
        self.vocab_size = spec.vocab_size
        self.embedding = nnx.Param(_table(spec, rngs), axes=("vocab", "width"))
        self.blocks = nnx.List([Block(spec, number, rngs=rngs) for number in range(len(spec.layers))])
        self.norm = _norm(spec)
        has_table = spec.has_logits and not spec.tied
        self.unembedding = nnx.Param(_table(spec, rngs), axes=("vocab", "width")) if has_table else None

    def __call__(
        self,
        tokens: Int[Array, "seq token"],
        mask: Bool[Array, "seq token"],
        cache: Cache | None = None,
        *,
        prefix: Cache | None = None,
        keys: Key[Array, "seq token"] | None = None,
        texts: Int[Array, "seq token"] | None = None,
        choices: Int[Array, "seq token choice"] | None = None,
    ) -> Any:
        """Return the hidden states of `tokens`, and the cache with their keys and values appended.

        With `choices`, the experts of each layer with experts in turn, the result has the third part that
        `dovetail.protocols.LanguageModel` describes.
        """
        spec, parts, begun, width = self.spec, _parts(tokens, cache), cache, tokens.shape[1]
        if parts > 1:  # what fills a cache has no keys before it, and needs none to write to
            cache, (tokens, mask, keys, texts, choices) = None, _filled(2 * parts, tokens, mask, keys, texts, choices)
        shared, own = (0 if kept is None else kept.valid.shape[1] for kept in (prefix, cache))
        shapes = Shapes(
            tokens=tokens.shape[1],
            own=own or tokens.shape[1],
            prefix=shared,
            packed=texts is not None,
            decoding=cache is not None,
            parts=parts,
        )
        how = choose(spec, shapes)
        seen = views(spec.layers, spec.head_dim, mask, cache, prefix, keys, texts=texts, how=how, parts=parts)
        x = self.embedding[...][by_token(dealt(tokens, parts), parts)].astype(spec.dtype)
        if spec.embedding_scale != 1:
            x = x * jnp.asarray(spec.embedding_scale, spec.dtype)
        x = rows_cut(x)
        layers, chosen, given = [], [], _by_layer(spec, choices, parts)
        for number, (block, layer) in enumerate(zip(self.blocks, spec.layers, strict=True)):
            past, shared = (None if kept is None else kept.layers[number] for kept in (cache, prefix))
            x, present, experts = _run(block, spec.remat, x, seen[layer], past, shared, given.get(number))
            x = rows_cut(x)
            layers.append(present)
            chosen.append(experts)
        hidden = handed_back(by_seq(self.norm(x), len(tokens), parts), parts)[:, :width]
        if begun is not None:
            layers = layers if parts == 1 else jax.tree.map(lambda x: handed_back(x, parts)[:, :width], layers)
            cache = begun.extend(tuple(layers), mask[:, :width])
        if choices is None:
            return hidden, cache
        together = jnp.concatenate([experts for experts in chosen if experts is not None], axis=1)
        own = handed_back(by_seq(together.astype(choices.dtype), len(tokens), parts), parts)
        return hidden, cache, own[:, :width]

    @property
    def heads(self) -> int:
        """Query heads of each layer."""
        return self.spec.heads

    @property
    def modes(self) -> tuple[str, ...]:
        """The combinations of `remat` and `attention` that the spec leaves open, from the fastest to the most frugal.

        All of them compute the same values; the last one needs least memory.
        """
        remats = ("none", "dots_no_batch", "full") if self.spec.remat == "auto" else (self.spec.remat,)
        first, *others = remats
        attentions = ("auto", "blockwise") if self.spec.attention == "auto" else (self.spec.attention,)
        pairs = [(first, attention) for attention in attentions] + [(remat, attentions[-1]) for remat in others]
        return tuple(f"remat {remat}, attention {attention}" for remat, attention in pairs)

    def in_mode(self, mode: str) -> Transformer:
        """Return the same model computing in `mode`; settings that its spec fixes stay as they are."""
        chosen = dict(part.split() for part in mode.split(", "))
        left_open = {name: value for name, value in chosen.items() if getattr(self.spec, name) == "auto"}
        self.spec = attrs.evolve(self.spec, **left_open)
        return self

    @property
    def has_dropout(self) -> bool:
        """Whether the model has dropout, so that `keys` change the result."""
        return any(isinstance(module, LowRank) and module.dropout > 0 for _, module in nnx.iter_modules(self))

    @property
    def choices(self) -> int:
        """The number of experts that a token uses in all layers together; 0 without experts."""
        sparsity = self.spec.sparsity
        return 0 if sparsity is None else len(sparsity.layers) * sparsity.chosen

    @property
    def packs(self) -> bool:
        """Whether rows may pack several texts."""
        return True

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        """Project hidden states to float32 logits.

        Raises:
            ConfigError: if the model has no logits.
        """
        if not self.spec.has_logits:
            raise ConfigError("the model is a reward model or critic without logits, so it cannot generate text")
        table = (self.embedding if self.unembedding is None else self.unembedding)[...]
        logits = scores(hidden.reshape(-1, self.width), table)
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        if self.spec.logit_cap is not None:
            logits = self.spec.logit_cap * jnp.tanh(logits / self.spec.logit_cap)
        return logits.reshape(*hidden.shape[:-1], self.vocab_size)

    def init_cache(self, batch: int, length: int) -> Cache:
        """Return an empty cache for `batch` rows of at most `length` tokens."""
        spec = self.spec
        return empty_cache(len(spec.layers), batch, length, spec.kv_heads, spec.head_dim, spec.dtype)


def decoder_of(model: nnx.Module) -> Transformer:
    """Return the model if it is a decoder of this package.

    Raises:
        ConfigError: otherwise.
    """
    if not isinstance(model, Transformer):
        raise ConfigError(f"{type(model).__name__} is not a decoder of dovetail_model; its layers have no names")
    return model


def _parts(tokens: Int[Array, "seq token"], cache: Cache | None) -> int:
    """Return the number of devices over which the tokens of a row are cut: 1 if they continue rows that are stored.

    Decoding divides rows over these devices, too, so that none of them has to ask the others for keys.
    """
    width = tokens.shape[1]
    is_begun = cache is not None and cache.valid.shape[1] != width
    return 1 if width == 1 or is_begun else parts_of(0, TOKENS)


def _filled(size: int, tokens: Any, mask: Any, *others: Any) -> tuple[Any, ...]:
    """Pad rows to a multiple of `size` tokens, which nothing sees; what is None stays so."""
    more = -tokens.shape[1] % size

    def filled(x: Any) -> Any:
        return x if x is None else jnp.concatenate([x, jnp.repeat(x[:, -1:], more, axis=1)], axis=1)

    return filled(tokens), jnp.pad(mask, ((0, 0), (0, more))), *map(filled, others)


def _by_layer(
    spec: Spec, choices: Int[Array, "seq token choice"] | None, parts: int
) -> dict[int, Int[Array, "row choice"]]:
    """Return the given experts of each layer that has experts, by its number."""
    if choices is None or spec.sparsity is None:
        return {}
    layers, chosen = spec.sparsity.layers, spec.sparsity.chosen
    by_layer = by_token(dealt(choices.astype(jnp.int32), parts), parts).reshape(-1, len(layers), chosen)
    return {number: by_layer[:, index] for index, number in enumerate(sorted(layers))}


def _run(block: Block, remat: str, *inputs: Any) -> tuple[Float[Array, "row width"], KeyValues, Any]:
    """Call a block; its backward pass recomputes the values that the rematerialisation policy does not keep."""
    graphdef, params = nnx.split(block)
    return _called(graphdef, remat, params, *inputs)


# With a jit of its own, a block is traced once instead of once per layer; XLA inlines the calls.
@functools.partial(jax.jit, static_argnums=(0, 1))
def _called(graphdef: Any, remat: str, *arguments: Any) -> tuple[Float[Array, "row width"], KeyValues, Any]:
    def call(params: Any, *inputs: Any) -> tuple[Float[Array, "row width"], KeyValues, Any]:
        return nnx.merge(graphdef, params)(*inputs)

    return call(*arguments) if remat in ("none", "auto") else recomputed(call, POLICIES[remat])(*arguments)


def _normed(x: Float[Array, "row width"], norm: RMSNorm | None) -> Float[Array, "row width"]:
    return x if norm is None else norm(x)


def _ffn(spec: Spec, number: int, rngs: nnx.Rngs) -> GLU | Mixture:
    out_std = spec.init_std if spec.out_std is None else spec.out_std
    make = functools.partial(
        GLU, spec.width, spec.ffn, activation=spec.activation, bias=spec.ffn_bias, param_dtype=spec.param_dtype
    )
    if spec.sparsity is not None and number in spec.sparsity.layers:
        make = functools.partial(
            Mixture, spec.width, spec.sparsity, activation=spec.activation, param_dtype=spec.param_dtype
        )
    return make(std=spec.init_std, out_std=out_std, rngs=rngs)


def _norm(spec: Spec) -> RMSNorm:
    return RMSNorm(
        spec.width, axis="width", epsilon=spec.norm_epsilon, offset=spec.norm_offset, param_dtype=spec.param_dtype
    )


def _table(spec: Spec, rngs: nnx.Rngs) -> Float[Array, "vocab width"]:
    return spec.init_std * jax.random.normal(rngs.params(), (spec.vocab_size, spec.width), spec.param_dtype)


def abstract(spec: Spec) -> Transformer:
    """Return the model with shapes in place of arrays; a start asks for it several times."""
    return nnx.merge(*_abstract(spec), copy=True)


@functools.lru_cache(maxsize=8)
def _abstract(spec: Spec) -> tuple[Any, Any]:
    return nnx.split(nnx.eval_shape(lambda: Transformer(spec, rngs=cast(nnx.Rngs, _SameKey()))))


class _SameKey:
    """Gives the same key for everything, where nothing is drawn from it.

    The counting of `nnx.Rngs` takes three quarters of the time of `nnx.eval_shape`.
    """

    def __init__(self) -> None:
        self._key = jax.random.key(0)

    def params(self) -> Key[Array, ""]:
        return self._key
