"""Whether the ids of a run mean to a model's folder what they mean to the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dovetail.errors import ConfigError
from dovetail.protocols import Tokenizer
from dovetail_model.tokenizer import huggingface, sentencepiece


def check_vocabulary(tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer of which some piece has another id, or none, in the folder's own.

    The folder's may have more pieces. Nothing is refused where the folder has no tokenizer, or the run's cannot tell
    its pieces (a `vocabulary`, as the built-in ones have).

    Raises:
        ConfigError: naming the first piece that differs.
    """
    ours: Mapping[str, int] | None = getattr(tokenizer, "vocabulary", None)
    theirs = _of_folder(folder)
    if ours is None or theirs is None:
        return
    differing = sorted((number, piece) for piece, number in ours.items() if theirs.get(piece) != number)
    if differing:
        number, piece = differing[0]
        there = f"{theirs[piece]} there" if piece in theirs else "not in its vocabulary"
        raise ConfigError(
            f"{folder}: its tokenizer is not the run's: {piece!r} is id {number} in the run and {there}"
            f" ({len(differing):,} of {len(ours):,} pieces differ); a model reads ids, so both must have the same"
            " tokenizer"
        )


def _of_folder(folder: Path) -> Mapping[str, int] | None:
    if (folder / huggingface.FILE).is_file():
        return huggingface.read_vocabulary(folder / huggingface.FILE)
    if (folder / sentencepiece.FILE).is_file():
        return sentencepiece.SentencePiece(path=str(folder)).make([]).vocabulary
    return None
