"""Mistral."""

from __future__ import annotations

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig, common, layers
from dovetail_model.spec import Spec


def mistral(config: HuggingFaceConfig) -> Spec:
    """Mistral 7B and its successors of the same `model_type`: Llama, with a sliding window in all layers or in none.

    Jiang et al. 2023, "Mistral 7B", section 2.
    """
    window = config.optional("sliding_window", int)
    return attrs.evolve(common(config), layers=layers(config, is_sliding=lambda _: True, window=window))
