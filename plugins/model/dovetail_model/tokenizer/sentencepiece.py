"""A subword tokenizer, trained in process or loaded."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import sentencepiece as spm

from dovetail.errors import ConfigError, DataError
from dovetail.registry import declares
from dovetail_model.huggingface.chat_template import ChatTemplate, after_turn, now, read_source, saved_moment

if TYPE_CHECKING:
    from dovetail.protocols import Message

FILE = "tokenizer.model"
TEMPLATE_SETTING = "tokenizer.sentencepiece.chat_template"
META_SPACE = "\u2581"
SPECIAL = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}


@declares(files=("path", "chat_template"))
@attrs.frozen(kw_only=True)
class SentencePiece:
    r"""A sentencepiece tokenizer that restores every text exactly, including newlines and runs of spaces.

    Kudo and Richardson 2018, "SentencePiece". Training runs on one thread, so the same corpus gives the same bytes.
    Characters outside the vocabulary are encoded as UTF-8 bytes. Ids: 0 padding, 1 end of sequence, 2 unknown (never
    produced from text), then `symbols`, the 256 bytes and the learned pieces.

    Args:
        vocab_size: total number of ids; a corpus with fewer distinct pieces gives a smaller vocabulary.
        model_type: how pieces are chosen: byte-pair merges, or the unigram language model.
        symbols: strings that always become one id each.
        split_digits: whether every digit is a piece of its own.
        path: a model file, or a folder with `tokenizer.model`, to load instead of training.
        eos_tokens: the pieces that end a completion, such as `('<end_of_turn>', '<eos>')`, in place of the model's own.
            Demonstrations end with the first.
        add_bos: whether plain prompts begin with the beginning-of-sequence piece, as published models expect.
        chat_template: a jinja2 file for tasks that give `messages`.
        chat_options: variables for the template.

    Raises:
        ConfigError: if the vocabulary cannot hold the bytes, the symbols and the corpus's characters, a symbol is
            unusable, one of `eos_tokens` is not a piece, or `add_bos` is set and no piece begins a text, as in trained
            models.
        DataError: if the corpus is empty, or `path` cannot be read or has no piece that ends a completion.

    *Departures* from sentencepiece's defaults: no normalisation, no dummy space in front, white space kept, byte
    fallback; and U+2581, the character that sentencepiece uses for a space, survives too.

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
    eos_tokens: tuple[str, ...] = ()
    add_bos: bool = False
    chat_template: str | None = None
    chat_options: dict[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        refused = sorted({"", *SPECIAL.values()} & set(self.symbols))
        if refused or len(set(self.symbols)) < len(self.symbols):
            raise ConfigError(
                f"tokenizer.sentencepiece.symbols = {self.symbols}; symbols must be distinct and not empty, and cannot"
                f" be {', '.join(SPECIAL.values())}, which have a meaning already"
            )

    def make(self, corpus: Sequence[str]) -> SentencePieceTokenizer:
        """Load the tokenizer from `path`, or train it on `corpus`."""
        if self.path is not None:
            return self._read(Path(self.path).expanduser(), self.chat_template, now())
        if not any(corpus):
            raise DataError(
                "tokenizer.sentencepiece: the task's corpus is empty; add texts, or set tokenizer.sentencepiece.path"
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
        return self._open(proto.getvalue(), read_source(None, self.chat_template, TEMPLATE_SETTING), now())

    def load(self, folder: Path) -> SentencePieceTokenizer:
        """Read a folder written by `SentencePieceTokenizer.save`; a run keeps its original chat template."""
        return self._read(folder, None, saved_moment(folder))

    def _read(self, path: Path, chat_template: str | None, moment: str) -> SentencePieceTokenizer:
        file = path / FILE if path.is_dir() else path
        if file.exists() and not file.is_file():  # a pipe would be read forever
            raise DataError(f"{file}: it is not a file, where a sentencepiece model should be")
        source = read_source(file.parent, chat_template, TEMPLATE_SETTING)
        try:
            if not (proto := file.read_bytes()):
                raise DataError(f"{file}: it is empty, where a sentencepiece model should be")
            return self._open(proto, source, moment)
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            raise DataError(f"{file}: it does not hold a readable sentencepiece model: {error}") from error

    def _open(self, proto: bytes, source: tuple[str, str] | None, moment: str) -> SentencePieceTokenizer:
        model = spm.SentencePieceProcessor(model_proto=proto)
        for token in self.eos_tokens:
            if model.id_to_piece(model.piece_to_id(token)) != token:
                raise ConfigError(f"tokenizer.sentencepiece.eos_tokens: {token!r} is not a piece of the model")
        if not self.eos_tokens and model.eos_id() < 0:
            raise DataError(
                f"'{self.path}': its sentencepiece model has no piece that ends a completion; name one with"
                " --set tokenizer.sentencepiece.eos_tokens=('PIECE',)"
            )
        if self.add_bos and model.bos_id() < 0:
            raise ConfigError(
                "tokenizer.sentencepiece.add_bos = True, but the model has no piece that begins a text; leave it out"
            )
        names = {"bos_token": model.bos_id(), "eos_token": model.eos_id(), "unk_token": model.unk_id()}
        tokens = {name: model.id_to_piece(number) for name, number in names.items() if number >= 0}
        template = None
        if source is not None:
            place, text = source
            template = ChatTemplate(source=text, place=place, tokens=tokens, options=self.chat_options, moment=moment)
        reads_bos = self.add_bos or template is not None
        return SentencePieceTokenizer(
            proto=proto,
            eos_tokens=self.eos_tokens,
            bos=tokens.get("bos_token", "") if reads_bos else "",
            add_bos=self.add_bos,
            template=template,
        )

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
            "num_threads": 1,  # the model's bytes depend on the number of threads
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


def _has_spaces(self: SentencePieceTokenizer) -> bool:
    """Tell whether a space can be encoded as such: not by a model whose corpus had none, or one without bytes."""
    processor = self._processor
    known = processor.piece_to_id(META_SPACE) != processor.unk_id()
    return known or processor.piece_to_id("<0x20>") == processor.unk_id()


@attrs.frozen(kw_only=True)
class SentencePieceTokenizer:
    """A loaded sentencepiece model; see `dovetail.protocols.Tokenizer`.

    Two are equal if their bytes and settings are. `bos` is the piece that becomes one id at the beginning of a text.
    """

    proto: bytes = attrs.field(repr=False)
    eos_tokens: tuple[str, ...] = ()
    bos: str = ""
    add_bos: bool = False
    template: ChatTemplate | None = attrs.field(default=None, repr=False)
    _processor: spm.SentencePieceProcessor = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_processor, takes_self=True)
    )

    _has_spaces: bool = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_has_spaces, takes_self=True)
    )

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._processor.vocab_size()

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of every piece."""
        return {self._processor.id_to_piece(number): number for number in range(self.vocab_size)}

    @property
    def pad_id(self) -> int:
        """The padding id, or the unknown id if a loaded model has none."""
        pad = self._processor.pad_id()
        return pad if pad >= 0 else self._processor.unk_id()

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a sequence."""
        if self.eos_tokens:
            return tuple(self._processor.piece_to_id(list(self.eos_tokens)))
        return (self._processor.eos_id(),)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text without adding special tokens; those in it are split, except a leading `bos`.

        Raises:
            DataError: for half of a surrogate pair.
        """
        begins = bool(self.bos) and text.startswith(self.bos)
        try:
            ids = self._encode(text.removeprefix(self.bos) if begins else text)
        except RuntimeError as error:  # the library does not say what it cannot read
            raise DataError(f"{FILE}: it cannot encode {text[:80]!r}; half of a surrogate pair is no text") from error
        return [self._processor.bos_id(), *ids] if begins else ids

    def _encode(self, text: str) -> list[int]:
        """Return the ids of a text; a character that sentencepiece would decode as another one is spelt in bytes."""
        odd = META_SPACE if self._has_spaces else f"{META_SPACE} "
        if not any(character in text for character in odd):
            return self._processor.encode(text)
        found = []
        for part in re.split(f"([{odd}])", text):
            spelt = part and part in odd
            found += [self._byte(byte) for byte in part.encode()] if spelt else self._processor.encode(part)
        return found

    def _byte(self, byte: int) -> int:
        return self._processor.piece_to_id(f"<0x{byte:02X}>")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids without padding, end and ids out of range; broken UTF-8 becomes U+FFFD."""
        size, ends = self.vocab_size, self.eos_ids
        known = (int(token) for token in ids if 0 <= token < size and token not in ends)
        return self._processor.decode([token for token in known if not self._processor.is_control(token)])

    def render(self, prompt: str | Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return a plain prompt, with `bos` if `add_bos` is set, or a conversation in the chat template.

        Raises:
            DataError: for messages, if there is no chat template or the template refuses them.
        """
        if isinstance(prompt, str):
            return self.bos + prompt if self.add_bos and not prompt.startswith(self.bos) else prompt
        if self.template is None:
            raise DataError(
                "the task gives messages, but the tokenizer has no chat template: name one with"
                " --set tokenizer.sentencepiece.chat_template=FILE"
            )
        return self.template.render(prompt, tools=tools)

    def bridge(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids between an assistant's turn and its next one; see `dovetail.protocols.Tokenizer`."""
        if self.template is None:
            return self.encode("".join(str(message["content"]) for message in messages))
        return after_turn(self.encode(self.template.between(messages)), self.eos_ids, self.template.place)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.model`, and the chat template if there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(self.proto)
        if self.template is not None:
            self.template.save(folder)
