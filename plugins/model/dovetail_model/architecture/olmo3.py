"""OLMo 3."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.olmo2 import olmo2
from dovetail_model.huggingface.config import SLIDING, HuggingFaceConfig, layers, rope
from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Spec

THETA = 500_000.0
"""The base of the frequencies where the file gives none."""


def olmo3(config: HuggingFaceConfig) -> Spec:
    """OLMo 3: OLMo 2, with a sliding window in all layers but every fourth.

    Team Olmo 2025, "Olmo 3". In layers with a window, rotary positions are not scaled: YaRN extends the
    context of the others only.
    """
    return attrs.evolve(
        olmo2(config),
        layers=layers(
            config,
            is_sliding=lambda number: (number + 1) % 4 > 0,
            window=config.size("sliding_window", 4096),
            full=rope(config, default_theta=THETA),
            sliding=_local(config),
        ),
    )


def _local(config: HuggingFaceConfig) -> Rope:
    if config.has("rope_parameters"):
        return rope(config, SLIDING, default_theta=THETA)
    return Rope(theta=config.positive("rope_theta", THETA))
