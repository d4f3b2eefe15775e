"""Subword tokenizer, trained in process or loaded."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import sentencepiece as spm

from dovetail.errors import ConfigError, DataError

FILE = "tokenizer.model"
META_SPACE = "\u2581"
SPECIAL = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}


@attrs.frozen(kw_only=True)
class SentencePiece:
    r"""A sentencepiece tokenizer that gives back every text as it was, newlines and runs of spaces included.

    Kudo and Richardson 2018, "SentencePiece". Training runs on one thread, so the same corpus gives the same bytes.
    What the vocabulary lacks is spelt in UTF-8 bytes. Ids: 0 padding, 1 end of sequence, 2 unknown (never produced from
    text), then `symbols`, the 256 bytes, the learnt pieces.

    Args:
        vocab_size: ids in all; a corpus with fewer distinct pieces gives a smaller vocabulary.
        model_type: how pieces are chosen: byte-pair merges, or the unigram language model.
        symbols: strings always kept whole as one id each.
        split_digits: every digit is a piece of its own.
        path: a model file, or a folder holding `tokenizer.model`, to load in place of training.

    Raises:
        ConfigError: if the vocabulary cannot hold bytes, symbols and the corpus's characters, or a symbol is unusable.
        DataError: if the corpus is empty, or `path` cannot be read.

    *Departures* from sentencepiece's defaults: no normalisation, no dummy space in front, white space kept, byte
    fallback; and the character U+2581, which sentencepiece uses for the space, survives too.

    >>> tokenizer = SentencePiece(vocab_size=300).make(["what is 12 + 34?\n<answer>46</answer>"])
    >>> tokenizer.decode(tokenizer.encode("1 +  1?\n"))
    '1 +  1?\n'
    >>> len(tokenizer.encode("<answer>46</answer>"))
    4
    """

    vocab_size: int = 512
    model_type: Literal["bpe", "unigram"] = "bpe"
    symbols: tuple[str, ...] = ("<reasoning>", "</reasoning>", "<answer>", "</answer>", "\n")
    split_digits: bool = True
    path: str | None = None

    def __attrs_post_init__(self) -> None:
        refused = sorted({"", *SPECIAL.values()} & set(self.symbols))
        if refused or len(set(self.symbols)) < len(self.symbols):
            raise ConfigError(
                f"tokenizer.sentencepiece.symbols = {self.symbols}; symbols must be distinct, not empty, and none of"
                f" {', '.join(SPECIAL.values())}, which mean something else"
            )

    def make(self, corpus: Sequence[str]) -> SentencePieceTokenizer:
        """Load the tokenizer from `path`, or train it on `corpus`."""
        if self.path is not None:
            return self.load(Path(self.path))
        if not any(corpus):
            raise DataError(
                "tokenizer.sentencepiece: the task's corpus is empty; give it texts, or set"
                " tokenizer.sentencepiece.path"
            )
        proto = io.BytesIO()
        try:
            spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=proto, **self._options())
        except RuntimeError as error:
            raise ConfigError(
                f"tokenizer.sentencepiece.vocab_size = {self.vocab_size} cannot be trained on this corpus of"
                f" {len(corpus)} texts (256 bytes, {len(SPECIAL) + len(self.symbols)} special ids and the corpus's"
                f" characters must fit): {error}"
            ) from error
        return SentencePieceTokenizer(proto=proto.getvalue())

    def load(self, folder: Path) -> SentencePieceTokenizer:
        """Read `tokenizer.model` from a folder, or the file itself."""
        file = folder / FILE if folder.is_dir() else folder
        try:
            return SentencePieceTokenizer(proto=file.read_bytes())
        except (OSError, RuntimeError) as error:
            raise DataError(f"{file}: no sentencepiece model can be read from it: {error}") from error

    def _options(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocab_size,
            "hard_vocab_limit": False,
            "model_type": self.model_type,
            "user_defined_symbols": list(self.symbols),
            "split_digits": self.split_digits,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "max_sentence_length": 1 << 24,  # longer texts would be skipped silently; the default is 4,192 bytes
            "num_threads": 1,  # the model's bytes depend on it
            "minloglevel": 2,
            "pad_id": 0,
            "eos_id": 1,
            "unk_id": 2,
            "bos_id": -1,
            "pad_piece": SPECIAL["pad"],
            "eos_piece": SPECIAL["eos"],
            "unk_piece": SPECIAL["unk"],
            "unk_surface": "\ufffd",
        }


def _processor(self: SentencePieceTokenizer) -> spm.SentencePieceProcessor:
    return spm.SentencePieceProcessor(model_proto=self.proto)


@attrs.frozen(kw_only=True)
class SentencePieceTokenizer:
    """A loaded sentencepiece model; see `dovetail.protocols.Tokenizer`. Equal if the model's bytes are."""

    proto: bytes = attrs.field(repr=False)
    _processor: spm.SentencePieceProcessor = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_processor, takes_self=True)
    )

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._processor.vocab_size()

    @property
    def pad_id(self) -> int:
        """The padding id, or the unknown id in a foreign model without one."""
        pad = self._processor.pad_id()
        return pad if pad >= 0 else self._processor.unk_id()

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The id that ends a sequence; none in a foreign model without one."""
        eos = self._processor.eos_id()
        return (eos,) if eos >= 0 else ()

    def encode(self, text: str) -> list[int]:
        """Return ids, without adding any special token; text that looks like one is spelt out."""
        first, *rest = (self._processor.encode(part) for part in text.split(META_SPACE))
        spelt = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in META_SPACE.encode()] if rest else []
        return first + [token for part in rest for token in (*spelt, *part)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return text, leaving out control ids (padding, end) and ids out of range; broken UTF-8 is U+FFFD."""
        size = self.vocab_size
        known = (int(token) for token in ids if 0 <= token < size)
        return self._processor.decode([token for token in known if not self._processor.is_control(token)])

    def save(self, folder: Path) -> None:
        """Write `tokenizer.model`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(self.proto)
