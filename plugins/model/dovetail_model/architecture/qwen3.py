"""Qwen3."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.qwen2 import qwen_layers
from dovetail_model.huggingface.config import HuggingFaceConfig, common
from dovetail_model.spec import Spec


def qwen3(config: HuggingFaceConfig) -> Spec:
    """Dense Qwen3: Llama, with normalised queries and keys in each head.

    Qwen Team 2025, "Qwen3 Technical Report", section 2.
    """
    bias = config.get("attention_bias", bool, False)
    return attrs.evolve(common(config), qk_norm=True, qkv_bias=bias, out_bias=bias, layers=qwen_layers(config))
