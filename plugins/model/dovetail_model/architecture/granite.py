"""Granite."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.llama import llama
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.spec import Spec


def granite(config: HuggingFaceConfig) -> Spec:
    """Dense Granite 3: Llama, with factors of the embeddings, attention scores, layer outputs and logits.

    Granite Team, IBM 2024, "Granite 3.0 Language Models", section 2. The factors are those of maximal update
    parametrisation (Yang et al. 2022, "Tensor Programs V"). `logits_scaling` divides; the others multiply.
    """
    divisor = config.get("logits_scaling", float, 1.0)
    if divisor == 0:
        raise config.refuse("logits_scaling = 0; logits are divided by it")
    return attrs.evolve(
        llama(config),
        embedding_scale=config.get("embedding_multiplier", float, 1.0),
        query_scale=config.get("attention_multiplier", float, 1.0),
        residual_scale=config.get("residual_multiplier", float, 1.0),
        logit_scale=1 / divisor,
    )
