"""Qwen3 with experts."""

from __future__ import annotations

import attrs

from dovetail_model.architecture.qwen3 import qwen3
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.names import MIXTURE
from dovetail_model.layers.mixture import Sparsity
from dovetail_model.spec import Spec


def qwen3_moe(config: HuggingFaceConfig) -> Spec:
    """Qwen3-MoE: Qwen3, with a mixture of experts in place of the feed-forward layer.

    Qwen Team 2025, "Qwen3 Technical Report", section 2. Every `decoder_sparse_step`-th layer has experts, except those
    in `mlp_only_layers`. The number of experts is `num_experts`, or `num_local_experts` in files of transformers 5.
    """
    return attrs.evolve(qwen3(config), names=MIXTURE, sparsity=_sparsity(config))


def _sparsity(config: HuggingFaceConfig) -> Sparsity | None:
    """Read which layers have experts, and their sizes; None if no layer has."""
    number, step = config.size("num_hidden_layers"), config.size("decoder_sparse_step", 1)
    dense = config.get("mlp_only_layers", list, [])
    if unknown := [layer for layer in dense if layer not in range(number)]:
        raise config.refuse(f"mlp_only_layers has {unknown[0]!r}; there are the layers 0 to {number - 1}")
    layers = tuple(i for i in range(number) if i not in dense and (i + 1) % step == 0)
    if not layers:
        return None
    name = "num_experts" if config.has("num_experts") else "num_local_experts"
    experts, chosen = config.size(name), config.size("num_experts_per_tok")
    if chosen > experts:
        raise config.refuse(f"num_experts_per_tok = {chosen}, but there are only {experts} experts ({name})")
    return Sparsity(
        experts=experts,
        chosen=chosen,
        ffn=config.size("moe_intermediate_size"),
        normalised=config.get("norm_topk_prob", bool, False),
        layers=layers,
    )
