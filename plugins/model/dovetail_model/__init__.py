"""Dovetail's built-in model plugin: architectures and tokenizers."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("model", "decoder", "dovetail_model.decoder:Decoder")
    register("tokenizer", "sentencepiece", "dovetail_model.sentencepiece_tokenizer:SentencePiece")
