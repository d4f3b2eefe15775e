"""Dovetail's built-in model plugin: models, architectures, adapters and tokenizers."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("model", "decoder", "dovetail_model.model.decoder:Decoder")
    register("model", "pretrained", "dovetail_model.model.pretrained:Pretrained")
    for name in ("gemma2", "gemma3", "gemma3_text", "granite", "llama", "mistral", "olmo2", "phi3", "smollm3"):
        register("architecture", name, f"dovetail_model.architecture.{name}:{name}")
    for name in ("olmo3", "qwen2", "qwen3", "qwen3_moe"):
        register("architecture", name, f"dovetail_model.architecture.{name}:{name}")
    register("adapter", "lora", "dovetail_model.adapter.lora:LoRA")
    register("adapter", "peft", "dovetail_model.adapter.peft:Peft")
    register("tokenizer", "huggingface", "dovetail_model.tokenizer.huggingface:HuggingFace")
    register("tokenizer", "sentencepiece", "dovetail_model.tokenizer.sentencepiece:SentencePiece")
    for name, attribute in (("ema", "Ema"), ("frozen", "Frozen"), ("renewed", "Renewed")):
        register("follower", name, f"dovetail_model.follower.{name}:{attribute}")
