"""The text tower of Gemma 3's larger sizes, which also read images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dovetail_model.architecture.gemma3_text import gemma3_text
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.names import GEMMA3_LAYOUTS, GEMMA3_OTHERS
from dovetail_model.huggingface.tower import TEXT, Tower
from dovetail_model.spec import Spec

ALONE: Final = "gemma3_text"
DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
"""What the `text_config` of published folders leaves out where it is the default of `transformers`."""
ROPE: Final[Mapping[str, Any]] = {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0}
"""The same for rotary positions, unless the file has them in `rope_parameters`."""
OUTSIDE: Final = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
"""What `config.json` may say outside of `text_config`, where `transformers` looks for it."""


def gemma3(config: HuggingFaceConfig) -> Spec:
    """The text tower of Gemma 3 4B, 12B and 27B, whose folders also contain an image encoder.

    Gemma Team 2025, "Gemma 3 Technical Report", section 2. The tower is a model of `gemma3_text` that `text_config`
    describes; what that leaves out is as in `transformers`. The image encoder is not read, so a prompt is text, and an
    export is a folder of `gemma3_text`.
    """
    text = config.part(TEXT, DEFAULTS)
    text.one_of("model_type", text.get("model_type", str, ALONE), {ALONE: True})
    alone = {
        **({} if text.has("rope_parameters") else ROPE),
        **text.values,
        **{name: config.values[name] for name in OUTSIDE if config.has(name)},
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": ALONE,
    }
    # that it is a reward model is said of the whole
    read = attrs.evolve(text, values={**alone, "architectures": config.values.get("architectures")})
    return attrs.evolve(gemma3_text(read), tower=Tower(layouts=GEMMA3_LAYOUTS, others=GEMMA3_OTHERS, config=alone))
