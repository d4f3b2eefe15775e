"""A decoder given by its sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import attrs
from annotated_types import Ge, Gt, Interval
from flax import nnx

from dovetail import STATIC
from dovetail.errors import ConfigError
from dovetail.protocols import Place
from dovetail_model.huggingface.export import save_pretrained
from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Attention, DType, Layer, Remat, Spec
from dovetail_model.transformer import Transformer, abstract

Units = Annotated[int, Interval(ge=1, le=1_000_000)]


@attrs.frozen(kw_only=True)
class Decoder:
    """A small Llama-like decoder, randomly initialised: RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases.

        x ← x + Attention(RMSNorm(x))
        x ← x + SwiGLU(RMSNorm(x))          for each layer; hidden = RMSNorm(x), logits = hidden Eᵀ

    Touvron et al. 2023, "LLaMA", section 2.2. Weights are drawn from N(0, init_std²), except that the weights that
    write to the residual stream are drawn from N(0, init_std² / (2 · layers)) (Radford et al. 2019, "GPT-2",
    section 2.3).

    Args:
        width: units of the residual stream.
        layers: number of blocks.
        heads: query heads per layer.
        kv_heads: key-value heads per layer; a divisor of `heads`.
        head_dim: units per head, even; None means `width / heads`.
        ffn: units of the feed-forward layer; None means 8/3 of the width, rounded up to a multiple of 64.
        rope_theta: base of the rotary frequencies.
        norm_epsilon: added to the mean square.
        tied: whether the logits use the embedding too.
        dtype: the type of activations and cache; logits, softmax and norms are float32.
        param_dtype: the type of the weights.
        init_std: standard deviation of the initial weights.
        remat: what the backward pass recomputes in each layer, to save memory: nothing ('none'), everything except
            matrix products ('dots'), everything except products with weights ('dots_no_batch'), or everything ('full').
            'auto' chooses the first of 'none', 'dots_no_batch' and 'full' with which a step fits into memory.
        attention: the implementation: all scores at once ('dense'), in blocks whose scores are never stored
            ('blockwise'), NVIDIA's kernels ('cudnn') or the kernel for TPUs ('splash'); 'auto' chooses by platform and
            shapes. The kernels read whole rows, which `mesh.cp` cuts.

    Raises:
        ConfigError: for sizes that do not fit together.

    >>> import jax.numpy as jnp
    >>> model = Decoder(width=32, layers=1, heads=2, kv_heads=1).make(50, rngs=nnx.Rngs(0))
    >>> tokens = jnp.array([[3, 1, 4]])
    >>> hidden, _ = model(tokens, jnp.ones_like(tokens, bool))
    >>> model.logits(hidden).shape
    (1, 3, 50)
    """

    width: Units = 128
    layers: Annotated[int, Interval(ge=1, le=1_000)] = 4
    heads: Units = 4
    kv_heads: Units = 2
    head_dim: Units | None = None
    ffn: Units | None = None
    rope_theta: Annotated[float, Gt(0), STATIC] = 10_000.0
    norm_epsilon: Annotated[float, Ge(0), STATIC] = 1e-6
    tied: bool = True
    dtype: DType = "float32"
    param_dtype: DType = "float32"
    init_std: Annotated[float, Ge(0), STATIC] = 0.02
    remat: Remat = "auto"
    attention: Attention = "auto"

    def __attrs_post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "head_dim", "ffn"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"model.decoder.{name} = {size}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"model.decoder.heads = {self.heads} is not a multiple of kv_heads = {self.kv_heads}; each"
                " key-value head serves the same number of query heads"
            )
        if self.head_dim is None and self.width % self.heads:
            raise ConfigError(
                f"model.decoder.width = {self.width} is not a multiple of heads = {self.heads}; change one, or set"
                " head_dim"
            )
        if self.head_units % 2:
            raise ConfigError(
                f"model.decoder: {self.head_units} units per head; rotary positions rotate pairs, so it must be even"
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

    def make(self, vocab_size: int, *, rngs: nnx.Rngs, place: Place | None = None) -> Transformer:
        """Return a randomly initialised model. It is small, so it stays on one device; `place` is ignored."""
        return Transformer(self.spec(vocab_size), rngs=rngs)

    def abstract(self, vocab_size: int | None) -> Transformer:
        """Return the model with shapes in place of arrays.

        Raises:
            ConfigError: without a vocabulary size, which only a tokenizer gives.
        """
        if vocab_size is None:
            raise ConfigError("model.decoder has as many ids as its tokenizer, and there is no tokenizer here")
        spec = self.spec(vocab_size)
        return abstract(spec)

    def export(self, model: nnx.Module, folder: Path, *, adapter: bool, dtype: DType | None = None) -> list[Path]:
        """Write the model, which is a Llama, as a Hugging Face folder without a tokenizer.

        Raises:
            ConfigError: if `adapter` is set, since there is no folder that an adapter could refer to.
        """
        if adapter:
            raise ConfigError("model.decoder has no folder that an adapter could refer to; export it whole")
        return save_pretrained(folder, model, dtype=dtype)

    def spec(self, vocab_size: int) -> Spec:
        """Return the spec of the decoder with these sizes."""
        return Spec(
            vocab_size=vocab_size,
            width=self.width,
            ffn=self.ffn_units,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_units,
            layers=(Layer(Rope(theta=self.rope_theta)),) * self.layers,
            tied=self.tied,
            norm_epsilon=self.norm_epsilon,
            init_std=self.init_std,
            out_std=self.init_std * (2 * self.layers) ** -0.5,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            remat=self.remat,
            attention=self.attention,
        )
