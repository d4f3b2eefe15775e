"""Checks that a run's tokenizer and a model's own tokenizer assign the same ids."""

from __future__ import annotations

from collections.abc import Mapping

import sentencepiece

from dovetail.errors import ConfigError
from dovetail.protocols import Tokenizer
from dovetail_model.source.source import Source
from dovetail_model.tokenizer import huggingface
from dovetail_model.tokenizer.sentencepiece import FILE as SENTENCEPIECE


def check_vocabulary(tokenizer: Tokenizer, source: Source) -> None:
    """Refuse a tokenizer if the model's own tokenizer gives one of its pieces another id, or does not have it.

    The model's tokenizer may have more pieces. Nothing is checked if the model has no tokenizer, or if the run's
    tokenizer does not have the attribute `vocabulary`, which the built-in ones have.

    Raises:
        ConfigError: naming the first piece that differs.
    """
    own = source.text(huggingface.FILE)
    if own is not None and getattr(tokenizer, "files", {}).get(huggingface.FILE) == own:
        return
    ours: Mapping[str, int] | None = getattr(tokenizer, "vocabulary", None)
    theirs = _own(source, own)
    if ours is None or theirs is None:
        return
    differing = sorted((number, piece) for piece, number in ours.items() if theirs.get(piece) != number)
    if differing:
        number, piece = differing[0]
        there = f"{theirs[piece]} there" if piece in theirs else "not in its vocabulary"
        raise ConfigError(
            f"{source.name}: its tokenizer is not the run's: {piece!r} is id {number} in the run and {there}"
            f" ({len(differing):,} of {len(ours):,} pieces differ); a model reads ids, so both must have the same"
            " tokenizer"
        )


def _own(source: Source, tokenizer: bytes | None) -> Mapping[str, int] | None:
    if tokenizer is not None:
        return huggingface.read_vocabulary(tokenizer, f"{source.name}/{huggingface.FILE}")
    if (model := source.text(SENTENCEPIECE)) is not None:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        return {processor.id_to_piece(number): number for number in range(processor.get_piece_size())}
    return None
