"""Phi-3 and Phi-4."""

from __future__ import annotations

import math
from typing import Any

import attrs

from dovetail_model.huggingface.config import MAXIMUM, ORIGINAL, HuggingFaceConfig, common, layers
from dovetail_model.huggingface.names import PHI3_FUSED
from dovetail_model.layers.rope import Divided, Rope
from dovetail_model.spec import Spec


def phi3(config: HuggingFaceConfig) -> Spec:
    """Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama, with fused matrices for queries, keys, values and for gate and up.

    Abdin et al. 2024, "Phi-3 Technical Report", section 2; Microsoft 2025, "Phi-4-Mini Technical Report", section 2.
    Part of each head may have no positions. LongRoPE has one set of frequencies for short texts and another for long
    ones; only the former is supported, and rows beyond the original length are refused.
    """
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        if config.get(name, bool, False):
            raise config.refuse(f"{name} is true; Phi-3's matrices have no biases")
    plain = HuggingFaceConfig(config.file, {k: v for k, v in config.values.items() if k not in _ROPE})
    spec = common(plain)
    positions = _positions(config, spec.head_dim)
    window = config.optional("sliding_window", int)
    return attrs.evolve(
        spec,
        fused=PHI3_FUSED,
        norm_epsilon=config.get("rms_norm_eps", float, 1e-5),
        layers=layers(plain, is_sliding=lambda _: True, window=window, full=positions),
    )


_ROPE = ("rope_parameters", "rope_scaling", "partial_rotary_factor")


def _positions(config: HuggingFaceConfig, head_dim: int) -> Rope:
    outside: dict[str, Any] = {
        name: config.values[name] for name in ("rope_theta", "partial_rotary_factor") if config.has(name)
    }
    stored = config.get("rope_parameters", dict, config.get("rope_scaling", dict, {}))
    given = HuggingFaceConfig(config.file, {**outside, **stored})
    kind = given.get("rope_type", str, given.get("type", str, "default"))
    share = given.get("partial_rotary_factor", float, 1.0)
    turned = int(head_dim * share)
    if not 0 < share <= 1 or turned < 2 or turned % 2:
        raise config.refuse(f"partial_rotary_factor = {share}; it must turn an even number of the {head_dim} units")
    rope = Rope(theta=given.positive("rope_theta", 10_000.0), share=share)
    if config.one_of("rope_type", kind, {"default": False, "longrope": True, "su": True}):
        return _long(config, given, rope, turned // 2)
    return rope


def _long(config: HuggingFaceConfig, given: HuggingFaceConfig, rope: Rope, pairs: int) -> Rope:
    """Return LongRoPE's rotary positions for texts up to the original length."""
    divisors = given.get("short_factor", list)
    if len(divisors) != pairs or not all(isinstance(d, int | float) and d > 0 for d in divisors):
        raise config.refuse(f"short_factor = {divisors}; it needs a positive number for each of the {pairs} pairs")
    original = config.size(ORIGINAL, given.get(ORIGINAL, int, 4096))
    factor = given.get("factor", float) if given.has("factor") else config.size(MAXIMUM, original) / original
    magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return attrs.evolve(
        rope,
        stretch=Divided(tuple(float(d) for d in divisors)),
        magnitude=given.get("attention_factor", float, magnitude),
        limit=original,
    )
