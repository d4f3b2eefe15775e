"""Llama 2 and 3."""

from __future__ import annotations

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig, common
from dovetail_model.spec import Spec


def llama(config: HuggingFaceConfig) -> Spec:
    """Llama 2, 3, 3.1, 3.2 and 3.3; from 3.1 on with stretched rotary positions, and with biases if the file says so.

    Grattafiori et al. 2024, "The Llama 3 Herd of Models", section 3.2.
    """
    attention_bias = config.get("attention_bias", bool, False)
    return attrs.evolve(
        common(config),
        qkv_bias=attention_bias,
        out_bias=attention_bias,
        ffn_bias=config.get("mlp_bias", bool, False),
    )
