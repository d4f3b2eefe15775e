"""Dovetail's built-in model plugin: architectures and tokenizers."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("model", "decoder", "dovetail_model.decoder:Decoder")
    register("model", "pretrained", "dovetail_model.pretrained:Pretrained")
    for name in ("gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"):
        register("architecture", name, f"dovetail_model.architectures.{name}:{name}")
    register("adapter", "lora", "dovetail_model.lora:LoRA")
    register("tokenizer", "huggingface", "dovetail_model.huggingface_tokenizer:HuggingFace")
    register("tokenizer", "sentencepiece", "dovetail_model.sentencepiece_tokenizer:SentencePiece")
    register("follower", "ema", "dovetail_model.follower.ema:Ema")
    register("follower", "frozen", "dovetail_model.follower.frozen:Frozen")
    register("follower", "renewed", "dovetail_model.follower.renewed:Renewed")
