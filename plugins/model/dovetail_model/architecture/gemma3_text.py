"""Gemma 3, text only."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.gemma2 import gemma
from dovetail_model.huggingface.config import SLIDING, HuggingFaceConfig, layers, rope
from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Spec


def gemma3_text(config: HuggingFaceConfig) -> Spec:
    """Gemma 3's text models (270M, 1B): Gemma 2 with normalised queries and keys instead of soft caps.

    Gemma Team 2025, "Gemma 3 Technical Report", section 2.1. Five layers with a window are followed by one with full
    attention; the two kinds have different rotary positions.
    """
    pattern = config.size("sliding_window_pattern", config.size("_sliding_window_pattern", 6))
    return attrs.evolve(
        gemma(config),
        qk_norm=True,
        layers=layers(
            config,
            is_sliding=lambda number: (number + 1) % pattern > 0,
            window=config.optional("sliding_window", int),
            full=rope(config, default_theta=1_000_000.0),
            sliding=_local(config),
        ),
    )


def _local(config: HuggingFaceConfig) -> Rope:
    if config.has("rope_parameters"):
        return rope(config, SLIDING)
    return Rope(theta=config.get("rope_local_base_freq", float, 10_000.0))
