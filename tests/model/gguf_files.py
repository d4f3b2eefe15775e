"""GGUF files for tests, written by the `gguf` package from folders of fixtures, as llama.cpp's converter does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.model.folders import FIXTURES, arrays_of, config_of
from tests.tiny_folder import CHAT, END, PAD

ARCHITECTURES = {"gemma2": "gemma2", "gemma3_text": "gemma3", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""model_type -> general.architecture"""

PLAIN = {
    "gemma2": {"query_pre_attn_scalar": 6},
    "gemma3_text": {"query_pre_attn_scalar": 6, "layer_types": None},
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
    "qwen2": {},
    "qwen3": {},
}
"""What a GGUF file cannot say of the fixtures."""


def config_that_fits(architecture: str) -> dict[str, Any]:
    """Return a fixture's config.json without what a GGUF file cannot say."""
    return config_of(architecture) | {"initializer_range": 0.02} | PLAIN[architecture]


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of queries or keys as llama.cpp wants them."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    """Return a folder's tensors by their names in a GGUF file, in float32, as such a file has them."""
    config = json.loads((folder / "config.json").read_text())
    word = ARCHITECTURES[config["model_type"]]
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == word)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    found = {}
    for name, stored in arrays_of(folder).items():
        array = stored.astype(np.float32)
        if word == "llama" and ("q_proj" in name or "k_proj" in name):
            array = permuted(array, config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        if word.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        found[names.get_name(name, (".weight", ".bias"))] = array
    return found


def metadata_of(folder: Path) -> dict[str, Any]:
    """Return what a GGUF file says of a folder's model, under `ARCHITECTURE.`."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters", config)
    is_gemma = config["model_type"].startswith("gemma")
    return {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": rope.get("full_attention", rope)["rope_theta"],
        **({"attention.sliding_window": config["sliding_window"]} if is_gemma else {}),
        **({"final_logit_softcapping": 6.0} if config["model_type"] == "gemma2" else {}),
    }


def tokenizer_metadata(folder: Path) -> dict[str, Any]:
    """Return what a GGUF file says of a byte-level tokenizer, that of `tests.tiny_folder`."""
    stored = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = stored["model"]["vocab"] | {each["content"]: each["id"] for each in stored["added_tokens"]}
    added = {each["content"] for each in stored["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    kinds = [gguf.TokenType.CONTROL if token in added else gguf.TokenType.NORMAL for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in kinds],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in stored["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": vocabulary[END],
        "tokenizer.ggml.eot_token_id": vocabulary[PAD],
        "tokenizer.ggml.padding_token_id": vocabulary[PAD],
        "tokenizer.chat_template": CHAT,
    }


def write_gguf(
    file: Path,
    architecture: str,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any],
    *,
    types: Mapping[str, gguf.GGMLQuantizationType] = {},
) -> Path:
    """Write a file; `metadata` keys without a known beginning get that of the architecture."""
    writer = gguf.GGUFWriter(str(file), architecture)
    for key, value in metadata.items():
        full = key if key.startswith(("tokenizer.", "general.", "split.")) else f"{architecture}.{key}"
        if isinstance(value, (list, tuple)):
            writer.add_array(full, list(value))
        elif isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        else:
            writer.add_string(full, value)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=types.get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def write_fixture(file: Path, architecture: str, **metadata: Any) -> Path:
    """Write a fixture's model as a GGUF file."""
    return write_folder(file, FIXTURES / architecture, **metadata)


def write_folder(file: Path, folder: Path, **metadata: Any) -> Path:
    """Write a folder's model as a GGUF file; with a tokenizer, if the metadata has one."""
    word = ARCHITECTURES[json.loads((folder / "config.json").read_text())["model_type"]]
    return write_gguf(file, word, tensors_of(folder), metadata_of(folder) | metadata)
