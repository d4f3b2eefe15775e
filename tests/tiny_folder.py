"""Writes tiny random folders in the layout of published models: config, safetensors, tokenizer, chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flax import nnx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from dovetail_model.huggingface.export import save_pretrained
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.source.folder import Folder

PAD, END = "<|endoftext|>", "<|im_end|>"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = (
    "Solve the problem below. First reason step by step between <reasoning> and </reasoning>, then give the final number,"
    " and nothing else, between <answer> and </answer>.\n\nProblem: What is 12 + 34?\n",
)


QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rope_theta": 1e6,
    "use_sliding_window": False,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rope_theta": 1e5,
}
GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": 16,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}


def write(folder: Path, architecture: Mapping[str, Any] = QWEN2) -> None:
    """Write the folder."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 4, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in (PAD, "<|im_start|>", END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    pad, end = tokenizer.token_to_id(PAD), tokenizer.token_to_id(END)
    files = {
        "config.json": {
            **architecture,
            "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
        "generation_config.json": {"eos_token_id": [end, pad], "pad_token_id": pad, "temperature": 0.7},
        "tokenizer_config.json": {"eos_token": END, "pad_token": PAD, "bos_token": None, "chat_template": CHAT},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    maker = Pretrained(path=str(folder), param_dtype="bfloat16", random=True)
    model = maker.make(tokenizer.get_vocab_size(), rngs=nnx.Rngs(0))
    save_pretrained(folder, model, source=Folder(folder))
