"""Converts the tensors of a GGUF file to the names and layout of a Hugging Face folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import numpy as np

from dovetail_model.huggingface.safetensors import Readable
from dovetail_model.source.gguf.config import ROPE_FACTORS
from dovetail_model.source.gguf.file import GgufFile

LLAMA: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA: Final[Mapping[str, str]] = {
    **LLAMA,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "llama": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
}

_IN_LAYER: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


@attrs.frozen
class Changed:
    """A tensor whose layout differs from that in a Hugging Face folder."""

    stored: Readable
    change: Callable[[np.ndarray], np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""
        return self.stored.dtype

    def read(self) -> np.ndarray:
        """Return the tensor in the folder's layout."""
        return self.change(self.stored.read())


def hf_tensors(file: GgufFile, config: Mapping[str, Any]) -> dict[str, Readable]:
    """Return the tensors of a file by their names in a folder with this `config.json`.

    Two conversions of llama.cpp are undone: it permutes Llama's queries and keys so that rotary positions rotate
    neighbours instead of halves, and it adds one to the scales of Gemma's norms. An unknown tensor keeps its name.
    """
    architecture = file.get("general.architecture", str)
    names = NAMES[architecture]
    return {
        _hf_name(names, name): _as_in_folder(architecture, name, tensor, config)
        for name, tensor in file.tensors.items()
        if name != ROPE_FACTORS
    }


def _hf_name(names: Mapping[str, str], name: str) -> str:
    if found := _IN_LAYER.fullmatch(name):
        number, module, leaf = found.groups()
        return f"model.layers.{number}.{names[module]}.{leaf}" if module in names else name
    module, _, leaf = name.rpartition(".")
    return f"{names[module]}.{leaf}" if module in names else name


def _as_in_folder(architecture: str, name: str, tensor: Readable, config: Mapping[str, Any]) -> Readable:
    if architecture == "llama" and ".attn_q." in name:
        return Changed(tensor, lambda stored: _halves(stored, config["num_attention_heads"]))
    if architecture == "llama" and ".attn_k." in name:
        return Changed(tensor, lambda stored: _halves(stored, config["num_key_value_heads"]))
    if architecture in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return Changed(tensor, lambda stored: stored - 1)
    return tensor


def _halves(stored: np.ndarray, heads: int) -> np.ndarray:
    """Move the two rows of each rotary pair half a head apart: (x₀ y₀ x₁ y₁ …) becomes (x₀ x₁ … y₀ y₁ …).

    >>> _halves(np.array([0, 4, 1, 5, 2, 6, 3, 7]), heads=1).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    pairs = stored.reshape(heads, -1, 2, *stored.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(stored.shape)
