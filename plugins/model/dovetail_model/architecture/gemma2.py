"""Gemma 2."""

from __future__ import annotations

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig, common, layers
from dovetail_model.huggingface.names import GEMMA
from dovetail_model.spec import Spec


def gemma2(config: HuggingFaceConfig) -> Spec:
    """Gemma 2: soft caps, a sliding window in every other layer from the first, and norms before and after each block.

    Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2.
    """
    return attrs.evolve(
        gemma(config),
        layers=layers(config, is_sliding=lambda number: number % 2 == 0, window=config.optional("sliding_window", int)),
    )


def gemma(config: HuggingFaceConfig) -> Spec:
    """Read the settings that Gemma 2 and 3 share."""
    bias = config.get("attention_bias", bool, False)
    if config.get("use_bidirectional_attention", bool, False):
        raise config.refuse("use_bidirectional_attention is true; a policy generates from left to right")
    spec = common(config, tied=True)
    return attrs.evolve(
        spec,
        names=GEMMA,
        norm_offset=1.0,
        post_norms=True,
        embedding_scale=spec.width**0.5,
        qkv_bias=bias,
        out_bias=bias,
        query_scale=config.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        attention_cap=config.optional("attn_logit_softcapping", float),
        logit_cap=config.optional("final_logit_softcapping", float),
    )
