"""The numbers that describe a decoder, the same for every architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from dovetail_model.huggingface.names import LLAMA
from dovetail_model.huggingface.tower import Tower
from dovetail_model.layers.glu import Activation
from dovetail_model.layers.mixture import Sparsity
from dovetail_model.layers.rope import Rope

DType = Literal["float32", "bfloat16"]
Remat = Literal["auto", "none", "dots", "dots_no_batch", "full"]
Attention = Literal["auto", "dense", "blockwise", "cudnn", "splash"]


@attrs.frozen
class Layer:
    """The settings that may differ from layer to layer: rotary positions and the attention window (None: no limit).

    A window of w shows a token itself and the w - 1 tokens before it. Without rotary positions (None) a layer knows the
    order of tokens only from the causal mask and from the layers below.
    """

    rope: Rope | None
    window: int | None = None


@attrs.frozen(kw_only=True)
class Spec:
    """A decoder with RMSNorm, rotary positions, grouped-query attention and a gated feed-forward layer.

        x ← e E[token]                                 e = `embedding_scale`
        x ← x + r Norm'(Attention(Norm(x)))            Norm only where `pre_norms`, Norm' only where `post_norms`
        x ← x + r Norm'(GLU(Norm(x)))                  for each layer; r = `residual_scale`
        logits = c tanh(s Norm(x) Uᵀ / c)              U = E where `tied`; s = `logit_scale`; c = `logit_cap` or ∞

    Attributes:
        vocab_size: rows of the embedding.
        width: units of the residual stream.
        ffn: units of the feed-forward layer.
        sparsity: the experts that some layers have in place of the feed-forward layer; None if no layer has.
        heads: query heads per layer.
        kv_heads: key-value heads per layer; a divisor of `heads`.
        head_dim: units per head, even.
        layers: one entry for each block.
        tied: whether the logits use the embedding too.
        has_logits: false for a reward model or critic, whose head is kept outside the decoder.
        activation: the activation function of the feed-forward layer's gate.
        norm_epsilon: added to the mean square.
        norm_offset: added to the norms' scales; 1 if the stored scale is the difference from one.
        qk_norm: whether to normalise queries and keys before the rotation.
        qk_norm_over: whether each 'head' is normalised by itself, or all 'heads' together.
        pre_norms: whether to normalise the inputs of attention and of the feed-forward layer.
        post_norms: whether to normalise the outputs of both before they are added to the residual stream.
        qkv_bias, out_bias, ffn_bias: which products have a bias.
        query_scale: multiplies the queries; None means 1 / √head_dim.
        attention_cap, logit_cap: soft caps c, x ↦ c tanh(x / c), of attention scores and of logits.
        embedding_scale, residual_scale, logit_scale: factors of the embeddings, of each layer's contribution to the
            residual stream, and of the logits.
        init_std: standard deviation of the initial weights.
        out_std: standard deviation of the initial weights that write to the residual stream; None means `init_std`.
        dtype: the type of activations and cache; logits, softmax and norms are float32.
        param_dtype: the type of the weights.
        names: our module names -> those of a Hugging Face folder; see `dovetail_model.huggingface.names`.
        fused: the name of a matrix that a folder stores fused -> the names of its parts as in `names`, in row order.
        tower: where the model's folder stores it within a larger model; None if the folder has nothing else.
        remat: what the backward pass recomputes in each block: nothing ('none'), everything except matrix products
            ('dots'), everything except products of weights and activations ('dots_no_batch'), or everything ('full').
            With 'auto' the memory plan of a run decides; without a plan nothing is recomputed.
        attention: the implementation: 'dense' (all scores at once), 'blockwise' (no scores are stored), 'cudnn' or
            'splash'; 'auto' chooses by platform and shapes, see `dovetail_model.attention.choice`.
    """

    vocab_size: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    tied: bool
    has_logits: bool = True
    sparsity: Sparsity | None = None
    activation: Activation = "silu"
    norm_epsilon: float = 1e-6
    norm_offset: float = 0.0
    qk_norm: bool = False
    qk_norm_over: Literal["head", "heads"] = "head"
    pre_norms: bool = True
    post_norms: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    query_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    names: Mapping[str, str] = attrs.field(default=LLAMA, hash=False)
    fused: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, hash=False)
    tower: Tower | None = attrs.field(default=None, hash=False)
    init_std: float = 0.02
    out_std: float | None = None
    dtype: DType = "float32"
    param_dtype: DType = "float32"
    remat: Remat = "none"
    attention: Attention = "auto"
