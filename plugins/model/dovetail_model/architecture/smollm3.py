"""SmolLM3."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.llama import llama
from dovetail_model.huggingface.config import HuggingFaceConfig, layers, rope
from dovetail_model.spec import Layer, Spec


def smollm3(config: HuggingFaceConfig) -> Spec:
    """SmolLM3: Llama, except that every fourth layer has no rotary positions.

    Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner"; Yang et al. 2025, "RoPE to NoPE and Back
    Again". `no_rope_layers` has a 1 for each layer *with* rotary positions. With `use_sliding_window`, layers without
    them have a window; no published model uses it.
    """
    rotary = _rotary(config)
    window = config.optional("sliding_window", int) if config.get("use_sliding_window", bool, False) else None
    positions = rope(config, default_theta=2_000_000.0)
    listed = layers(config, is_sliding=lambda number: not rotary[number], window=window, full=positions)
    return attrs.evolve(
        llama(config),
        tied=config.get("tie_word_embeddings", bool, True),
        layers=tuple(
            Layer(layer.rope if has else None, layer.window) for layer, has in zip(listed, rotary, strict=True)
        ),
    )


def _rotary(config: HuggingFaceConfig) -> list[bool]:
    """Read which layers have rotary positions, from the list or from the interval of the layers without them."""
    number = config.size("num_hidden_layers")
    if not config.has("no_rope_layers"):
        interval = config.size("no_rope_layer_interval", 4)
        return [(i + 1) % interval > 0 for i in range(number)]
    listed = config.get("no_rope_layers", list)
    if len(listed) < number or any(value not in (0, 1) for value in listed):
        raise config.refuse(f"no_rope_layers = {listed}; it needs a 0 or 1 for each of the {number} layers")
    return [bool(value) for value in listed[:number]]
