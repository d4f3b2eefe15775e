"""Translates the metadata of a GGUF file to the values of a `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from dovetail.errors import listing, nearest
from dovetail_model.layers.rope import Stretch
from dovetail_model.source.gguf.file import GgufFile

Values = dict[str, Any]

ROPE_FACTORS = "rope_freqs.weight"
"""Llama 3.1's stretched rotary positions; a file stores only the divisors of the frequencies."""


def config_values(file: GgufFile) -> Values:
    """Return the values of a `config.json` that describes the model in a GGUF file.

    Raises:
        ConfigError: for an architecture or setting that is not supported.
    """
    name = file.get("general.architecture", str)
    if name not in READERS:
        known = sorted(READERS)
        raise file.refuse(
            f"general.architecture = {name!r} is not supported.{nearest(name, known)} Supported: {listing(known)}"
        )
    return READERS[name](Keys(file, name))


@attrs.frozen
class Keys:
    """The values under `ARCHITECTURE.` in a file's metadata."""

    file: GgufFile
    architecture: str

    def get(self, key: str, kind: type[Any], *default: Any) -> Any:
        """Return a value; see `GgufFile.get`."""
        return self.file.get(f"{self.architecture}.{key}", kind, *default)

    def one_for_all(self, key: str, *default: Any) -> int:
        """Return a size of at least 1 that may be given layer by layer but must be the same in all layers."""
        name = f"{self.architecture}.{key}"
        value = self.file.metadata.get(name)
        if isinstance(value, list):
            if not value or any(each != value[0] for each in value):
                raise self.file.refuse(f"{name} differs from layer to layer, which is not supported")
            size = value[0]
        else:
            size = self.get(key, int, *default)
        if type(size) is not int or size < 1:
            raise self.file.refuse(f"{name} = {size!r:.80}; it must be a whole number of at least 1")
        return size


def _llama(keys: Keys) -> Values:
    tensors = keys.file.tensors
    return {
        **_common(keys, "LlamaForCausalLM"),
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_output.bias" in tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in tensors,
    }


def _qwen2(keys: Keys) -> Values:
    values = {"model_type": "qwen2", "hidden_act": "silu", "use_sliding_window": False}
    return _common(keys, "Qwen2ForCausalLM") | values


def _qwen3(keys: Keys) -> Values:
    values = {"model_type": "qwen3", "hidden_act": "silu", "attention_bias": False, "use_sliding_window": False}
    return _common(keys, "Qwen3ForCausalLM") | values


def _gemma2(keys: Keys) -> Values:
    return {
        **_gemma(keys, "Gemma2ForCausalLM", largest=46),
        "model_type": "gemma2",
        "attn_logit_softcapping": keys.get("attn_logit_softcapping", float, 50.0),
        "final_logit_softcapping": keys.get("final_logit_softcapping", float, 30.0),
    }


def _gemma3(keys: Keys) -> Values:
    return {
        **_gemma(keys, "Gemma3ForCausalLM", largest=62),
        "model_type": "gemma3_text",
        "rope_theta": keys.get("rope.freq_base", float, 1_000_000.0),
        "rope_local_base_freq": keys.get("rope.freq_base_swa", float, 10_000.0),
        "final_logit_softcapping": keys.get("final_logit_softcapping", float, None),
    }


def _gemma(keys: Keys, class_name: str, *, largest: int) -> Values:
    """Read Gemma 2 and 3. The file lacks the query scale; the largest size (known by its layers) has another one."""
    values = _common(keys, class_name)
    per_head = values["hidden_size"] // values["num_attention_heads"]
    return values | {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": per_head if values["num_hidden_layers"] == largest else values["head_dim"],
        "sliding_window": keys.get("attention.sliding_window", int),
        "tie_word_embeddings": True,
    }


READERS: Mapping[str, Callable[[Keys], Values]] = {
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}
"""Readers by `general.architecture`; the files of Mistral and SmolLM give 'llama' there."""


def _common(keys: Keys, class_name: str) -> Values:
    file = keys.file
    if keys.get("expert_count", int, 0):
        raise file.refuse(f"{keys.architecture}.expert_count is not 0; mixtures of experts are not supported")
    width, heads = keys.get("embedding_length", int), keys.one_for_all("attention.head_count")
    head_dim = keys.get("attention.key_length", int, width // heads)
    if keys.get("attention.value_length", int, head_dim) != head_dim:
        raise file.refuse("keys and values have different lengths, which is not supported")
    if "token_embd.weight" not in file.tensors:
        raise file.refuse("it has no tensor token_embd.weight; is it a whole model?")
    return {
        "architectures": [class_name],
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": keys.one_for_all("feed_forward_length"),
        "num_hidden_layers": keys.get("block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.one_for_all("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.get("context_length", int),
        "rms_norm_eps": keys.get("attention.layer_norm_rms_epsilon", float),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "float32",
        **_rope(keys, head_dim),
        **{f"{name}_token_id": number for name, number in token_ids(file).items()},
    }


def token_ids(file: GgufFile) -> dict[str, int]:
    """Return the ids of the special tokens that a file names, under the keys `bos`, `eos` and `pad`."""
    named = {"bos": "bos", "eos": "eos", "pad": "padding"}
    keys = {name: f"tokenizer.ggml.{key}_token_id" for name, key in named.items()}
    return {name: file.get(key, int) for name, key in keys.items() if key in file.metadata}


def _rope(keys: Keys, head_dim: int) -> Values:
    theta = keys.get("rope.freq_base", float, 10_000.0)
    turned = keys.get("rope.dimension_count", int, head_dim)
    kind = keys.get("rope.scaling.type", str, "none")
    factor = keys.get("rope.scaling.factor", float, keys.get("rope.scale_linear", float, 1.0))
    values: Values = {"rope_theta": theta}
    if turned != head_dim:
        values["partial_rotary_factor"] = turned / head_dim
    if ROPE_FACTORS in keys.file.tensors:
        values["rope_scaling"] = _stretch(keys.file, theta, head_dim)
    elif kind not in ("none", "linear"):
        # GGUF stores the other parameters of YaRN and LongRoPE in different conventions
        raise keys.file.refuse(
            f"{keys.architecture}.rope.scaling.type = {kind!r}; supported are linear, none; use the model's own folder"
        )
    elif factor != 1.0:
        values["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    return values


def _stretch(file: GgufFile, theta: float, head_dim: int) -> Values:
    """Recover Llama 3.1's rule from the divisors of the frequencies; its models differ only in the factor."""
    stored = np.asarray(file.tensors[ROPE_FACTORS].read(), np.float64)
    rule = Stretch(factor=float(stored.max()), low=1.0, high=4.0, original=8192)
    plain = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    if stored.shape != plain.shape or not np.allclose(plain / rule(plain), stored, rtol=1e-3):
        raise file.refuse(
            f"{ROPE_FACTORS} does not follow Llama 3.1's rule for rotary positions; no other is supported"
        )
    return {
        "rope_type": "llama3",
        "factor": rule.factor,
        "low_freq_factor": rule.low,
        "high_freq_factor": rule.high,
        "original_max_position_embeddings": rule.original,
    }
