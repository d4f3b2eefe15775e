"""Qwen2 and Qwen2.5."""

from __future__ import annotations

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig, common, layers
from dovetail_model.spec import Layer, Spec


def qwen2(config: HuggingFaceConfig) -> Spec:
    """Qwen2 and Qwen2.5: Llama, with biases on queries, keys and values.

    Qwen Team 2024, "Qwen2 Technical Report", section 2.2. With `use_sliding_window`, layers from `max_window_layers` on
    have a window; no published model uses it.
    """
    return attrs.evolve(common(config), qkv_bias=True, layers=qwen_layers(config))


def qwen_layers(config: HuggingFaceConfig) -> tuple[Layer, ...]:
    """Read the layers of any Qwen: `sliding_window` counts only with `use_sliding_window`."""
    first = config.get("max_window_layers", int, 28)
    window = config.optional("sliding_window", int) if config.get("use_sliding_window", bool, False) else None
    return layers(config, is_sliding=lambda number: number >= first, window=window)
