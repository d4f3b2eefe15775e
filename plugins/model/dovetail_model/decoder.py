"""A pre-norm decoder with rotary positions, grouped-query attention and a gated feed-forward layer."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from dovetail import STATIC
from dovetail.errors import ConfigError
from dovetail_model.attention import Attention, Window, positions, visibility
from dovetail_model.cache import Cache, KeyValues, empty_cache
from dovetail_model.layers.norm import RMSNorm
from dovetail_model.layers.rope import frequencies, rotation
from dovetail_model.layers.swiglu import SwiGLU

DType = Literal["float32", "bfloat16"]


@attrs.frozen(kw_only=True)
class Decoder:
    """A small Llama-like decoder, randomly initialised: RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases.

        x ← x + Attention(RMSNorm(x))
        x ← x + SwiGLU(RMSNorm(x))          for each layer; hidden = RMSNorm(x), logits = hidden Eᵀ

    Touvron et al. 2023, "LLaMA", section 2.2. Weights are drawn from N(0, init_std²), those that write to the residual
    stream from N(0, init_std² / (2 · layers)) (Radford et al. 2019, "GPT-2", section 2.3).

    Args:
        width: units of the residual stream.
        layers: number of blocks.
        heads: query heads per layer.
        kv_heads: key-value heads per layer; a divisor of `heads`.
        head_dim: units per head, even; None is `width / heads`.
        ffn: units of the feed-forward layer; None is 8/3 of the width, rounded up to a multiple of 64.
        rope_theta: base of the rotary frequencies.
        norm_epsilon: added to the mean square.
        tied: use the embedding for the logits too.
        dtype: of activations and cache; logits, softmax and norms are float32.
        param_dtype: of the weights.
        init_std: standard deviation of the initial weights.

    Raises:
        ConfigError: for sizes that do not fit together.

    >>> model = Decoder(width=32, layers=1, heads=2, kv_heads=1).make(50, rngs=nnx.Rngs(0))
    >>> tokens = jnp.array([[3, 1, 4]])
    >>> hidden, _ = model(tokens, jnp.ones_like(tokens, bool))
    >>> model.logits(hidden).shape
    (1, 3, 50)
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    ffn: int | None = None
    rope_theta: Annotated[float, STATIC] = 10_000.0
    norm_epsilon: Annotated[float, STATIC] = 1e-6
    tied: bool = True
    dtype: DType = "float32"
    param_dtype: DType = "float32"
    init_std: Annotated[float, STATIC] = 0.02

    def __attrs_post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "head_dim", "ffn"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"model.decoder.{name} = {size}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"model.decoder.heads = {self.heads} is no multiple of kv_heads = {self.kv_heads}; each key-value head"
                " serves the same number of query heads"
            )
        if self.head_dim is None and self.width % self.heads:
            raise ConfigError(
                f"model.decoder.width = {self.width} is no multiple of heads = {self.heads}; change one, or set"
                " head_dim"
            )
        if self.head_units % 2:
            raise ConfigError(
                f"model.decoder: {self.head_units} units per head; rotary positions turn pairs, make it even"
            )

    @property
    def head_units(self) -> int:
        """Units per head, given or derived."""
        return self.head_dim or self.width // self.heads

    @property
    def ffn_units(self) -> int:
        """Units of the feed-forward layer, given or derived.

        >>> Decoder(width=128).ffn_units
        384
        """
        return self.ffn or -(-8 * self.width // (3 * 64)) * 64

    def make(self, vocab_size: int, *, rngs: nnx.Rngs) -> Transformer:
        """Return a randomly initialised model."""
        return Transformer(self, vocab_size, rngs=rngs)


class Block(nnx.Module):
    """Attention and feed-forward layer, each behind a norm and added to the residual stream."""

    def __init__(self, spec: Decoder, *, rngs: nnx.Rngs) -> None:
        out_std = spec.init_std * (2 * spec.layers) ** -0.5
        self.attention_norm = RMSNorm(spec.width, epsilon=spec.norm_epsilon, param_dtype=spec.param_dtype)
        self.attention = Attention(
            spec.width,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_units,
            std=spec.init_std,
            out_std=out_std,
            param_dtype=spec.param_dtype,
            rngs=rngs,
        )
        self.ffn_norm = RMSNorm(spec.width, epsilon=spec.norm_epsilon, param_dtype=spec.param_dtype)
        self.ffn = SwiGLU(
            spec.width,
            spec.ffn_units,
            std=spec.init_std,
            out_std=out_std,
            param_dtype=spec.param_dtype,
            rngs=rngs,
        )

    def __call__(
        self, x: Float[Array, "row width"], window: Window, past: KeyValues | None
    ) -> tuple[Float[Array, "row width"], KeyValues]:
        """Return the residual stream after this block, and the keys and values attended to."""
        mixed, present = self.attention(self.attention_norm(x), window, past)
        x = x + mixed
        return x + self.ffn(self.ffn_norm(x)), present


class Transformer(nnx.Module):
    """The decoder; `dovetail.protocols.LanguageModel` says what its methods mean.

    Activations are 2-D, one row per token, and layers are unrolled: about twice as fast on CPUs as [seq, token, width]
    and a scan. Every array is a plain `nnx.Param`, so `nnx.split` gives a state that jits, donates, shards and
    checkpoints, and two models of one shape have equal graph definitions (one executable serves both).
    """

    def __init__(self, spec: Decoder, vocab_size: int, *, rngs: nnx.Rngs) -> None:
        self.width = spec.width
        self.vocab_size = vocab_size
        self.kv_heads = spec.kv_heads
        self.head_dim = spec.head_units
        self.rope_theta = spec.rope_theta
        self.dtype = spec.dtype
        self.embedding = nnx.Param(_table(spec, vocab_size, rngs))
        self.blocks = nnx.List([Block(spec, rngs=rngs) for _ in range(spec.layers)])
        self.norm = RMSNorm(spec.width, epsilon=spec.norm_epsilon, param_dtype=spec.param_dtype)
        self.unembedding = None if spec.tied else nnx.Param(_table(spec, vocab_size, rngs))

    def __call__(
        self,
        tokens: Int[Array, "seq token"],
        mask: Bool[Array, "seq token"],
        cache: Cache | None = None,
    ) -> tuple[Float[Array, "seq token width"], Cache | None]:
        """Return the hidden states of `tokens`, and the cache with their keys and values appended."""
        angles = rotation(positions(mask, cache).reshape(-1), frequencies(self.head_dim, self.rope_theta))
        window = Window(angles, visibility(mask, cache), None if cache is None else cache.filled)
        x = self.embedding[...][tokens.reshape(-1)].astype(self.dtype)
        layers = []
        for number, block in enumerate(self.blocks):
            x, present = block(x, window, None if cache is None else cache.layers[number])
            layers.append(present)
        hidden = self.norm(x).reshape(*tokens.shape, self.width)
        return hidden, None if cache is None else cache.extend(tuple(layers), mask)

    def logits(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch vocab"]:
        """Project hidden states to float32 logits."""
        table = (self.embedding if self.unembedding is None else self.unembedding)[...].astype(hidden.dtype)
        rows = hidden.reshape(-1, self.width)
        logits = jnp.einsum("rw,vw->rv", rows, table, preferred_element_type=jnp.float32)
        return logits.reshape(*hidden.shape[:-1], self.vocab_size)

    def init_cache(self, batch: int, length: int) -> Cache:
        """Return an empty cache for `batch` rows of at most `length` tokens."""
        return empty_cache(len(self.blocks), batch, length, self.kv_heads, self.head_dim, self.dtype)


def _table(spec: Decoder, vocab_size: int, rngs: nnx.Rngs) -> Float[Array, "vocab width"]:
    return spec.init_std * jax.random.normal(rngs.params(), (vocab_size, spec.width), spec.param_dtype)
