"""The names of a decoder's parameters in Hugging Face folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ParameterPath = Sequence[Any]
"""The path of a parameter in the model: ('blocks', 3, 'attention', 'queries', 'kernel')."""

LLAMA: Mapping[str, str] = {
    "embedding": "model.embed_tokens",
    "unembedding": "lm_head",
    "norm": "model.norm",
    "blocks.{}.attention_norm": "model.layers.{}.input_layernorm",
    "blocks.{}.attention.queries": "model.layers.{}.self_attn.q_proj",
    "blocks.{}.attention.keys": "model.layers.{}.self_attn.k_proj",
    "blocks.{}.attention.values": "model.layers.{}.self_attn.v_proj",
    "blocks.{}.attention.out": "model.layers.{}.self_attn.o_proj",
    "blocks.{}.attention.query_norm": "model.layers.{}.self_attn.q_norm",
    "blocks.{}.attention.key_norm": "model.layers.{}.self_attn.k_norm",
    "blocks.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blocks.{}.ffn.gate": "model.layers.{}.mlp.gate_proj",
    "blocks.{}.ffn.up": "model.layers.{}.mlp.up_proj",
    "blocks.{}.ffn.down": "model.layers.{}.mlp.down_proj",
}
"""Llama's names, which most other models use too: our module -> theirs, where `{}` is the layer's index."""

GEMMA: Mapping[str, str] = {
    **LLAMA,
    "blocks.{}.attention_post_norm": "model.layers.{}.post_attention_layernorm",
    "blocks.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
    "blocks.{}.ffn_post_norm": "model.layers.{}.post_feedforward_layernorm",
}
"""Gemma 2 and 3 have norms before and after, OLMo 2 only after; `post_attention_layernorm` changes its meaning."""

GEMMA3_LAYOUTS: tuple[Mapping[str, str], ...] = (
    {"model.": "model.language_model."},
    {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."},
)
"""Gemma 3's text tower beside an image encoder: as the modules of `transformers`, and as in folders; see `Tower`."""

GEMMA3_OTHERS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
"""What the names of the image encoder's tensors begin with."""

PHI3_FUSED: Mapping[str, tuple[str, ...]] = {
    "model.layers.{}.self_attn.qkv_proj": tuple(f"model.layers.{{}}.self_attn.{name}_proj" for name in "qkv"),
    "model.layers.{}.mlp.gate_up_proj": tuple(f"model.layers.{{}}.mlp.{name}_proj" for name in ("gate", "up")),
}
"""Phi-3's fused matrices; the parts have Llama's names."""

MIXTURE: Mapping[str, str] = {
    **LLAMA,
    "blocks.{}.ffn.router": "model.layers.{}.mlp.gate",
    **{
        f"blocks.{{}}.ffn.experts.{name}": f"model.layers.{{}}.mlp.experts.{name}_proj"
        for name in ("gate", "up", "down")
    },
}
"""Qwen's mixtures of experts; see `dovetail_model.huggingface.experts` for the tensors of each expert."""

LEAVES: Mapping[str, str] = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def module_name(names: Mapping[str, str], module: ParameterPath) -> str:
    """Return the name of a module in a folder.

    >>> module_name(LLAMA, ("blocks", 3, "attention", "queries"))
    'model.layers.3.self_attn.q_proj'
    """
    numbers = [part for part in module if isinstance(part, int)]
    return names[".".join("{}" if isinstance(part, int) else part for part in module)].format(*numbers)


def tensor_name(names: Mapping[str, str], path: ParameterPath) -> str:
    """Return the name of a parameter in a folder.

    >>> tensor_name(LLAMA, ("blocks", 3, "ffn", "down", "kernel")), tensor_name(LLAMA, ("embedding",))
    ('model.layers.3.mlp.down_proj.weight', 'model.embed_tokens.weight')
    """
    *module, leaf = path
    if leaf in LEAVES:
        return f"{module_name(names, module)}.{LEAVES[leaf]}"
    return f"{module_name(names, path)}.weight"


def is_transposed(path: ParameterPath) -> bool:
    """Return whether folders swap the last two axes, as they do for matrices of linear layers: [outputs, inputs].

    >>> is_transposed(("blocks", 3, "ffn", "down", "kernel")), is_transposed(("embedding",))
    (True, False)
    """
    return path[-1] == "kernel"


def swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with its last two axes swapped.

    >>> swapped((8, 3, 2))
    (8, 2, 3)
    """
    return (*shape[:-2], shape[-1], shape[-2])
