"""The tokenizer of a Hugging Face model."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from dovetail.errors import ConfigError, DataError, listing, nearest
from dovetail.extras import needs
from dovetail.kinds.data import ASSISTANT
from dovetail.registry import declares
from dovetail_model.huggingface.chat_template import FILE as TEMPLATE
from dovetail_model.huggingface.chat_template import (
    ChatTemplate,
    after_turn,
    check_messages,
    now,
    read_source,
    saved_moment,
)
from dovetail_model.source.folder import Folder
from dovetail_model.source.source import Source, open_source

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from dovetail.protocols import Message

FILE: Final = "tokenizer.json"
CONFIG, SPECIAL, GENERATION = "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"
MODEL: Final = "config.json"
MOST_GROWTH: Final = 100_000
"""The number of characters that the replacements of a tokenizer may make of one."""
LARGEST_ID: Final = 2**32
GUARD: Final = "\ufdd0"
"""Marks a special token that is text, after its first character; Unicode leaves this one to programs' own use."""
PROBE: Final = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\u2042"}]


@declares(files=("path", "chat_template"))
@attrs.frozen(kw_only=True)
class HuggingFace:
    """The `tokenizer.json` of a model, with the special tokens and chat template of the files beside it.

    Any of these tokens ends a completion: the token that ends an assistant's turn in the chat template, the `eos_token`
    of `tokenizer_config.json` (or `special_tokens_map.json`), and any `eos_token_id` of `generation_config.json` (or
    `config.json`). Demonstrations end with the first of them in this order. A plain-text prompt gets the
    beginning-of-sequence token if the tokenizer adds one; a chat template writes its own.

    Special tokens spelt out in a plain-text prompt or in the assistant's messages become special tokens. In messages of
    other roles (questions, results of tools) and in descriptions of tools they stay text, so that nobody's message ends
    its own turn and begins another; a U+FDD0 after their first character says so in the rendered prompt.

    Args:
        path: a model folder, a `tokenizer.json`, or anything else that `model.pretrained.path` may be: a GGUF file,
            which contains its tokenizer, a model on the hub, or a GGUF file in a package.
        chat_template: a jinja2 file that replaces the folder's own (`chat_template.jinja`, or the `chat_template` of
            `tokenizer_config.json`).
        chat_options: variables for the template, such as `{'enable_thinking': False}`.
        keep_reasoning: whether the assistant's earlier turns keep their reasoning (up to `</think>`), which the
            templates of Qwen3 and DeepSeek-R1 take out; several turns of a reasoning model need it.
        eos_tokens: the tokens that end a completion; they replace those of the files.

    Raises:
        ConfigError: without a path or the `tokenizers` library, or for a token that is not in the vocabulary.
        DataError: if a file cannot be read, or no file names a token that ends a completion.
    """

    path: str | None = None
    chat_template: str | None = None
    chat_options: dict[str, Any] = attrs.field(factory=dict)
    keep_reasoning: bool = False
    eos_tokens: tuple[str, ...] = ()

    def make(self, corpus: Sequence[str]) -> HuggingFaceTokenizer:
        """Read the tokenizer at `path`; the corpus is not used."""
        if self.path is None:
            raise ConfigError(
                "tokenizer.huggingface has no path: name its folder with --set tokenizer.huggingface.path=FOLDER"
            )
        file = Path(self.path).expanduser()
        if file.suffix == ".json":
            return self._read(Folder(file.parent), file.name, self.chat_template, now())
        return self._read(open_source(self.path), FILE, self.chat_template, now())

    def load(self, folder: Path) -> HuggingFaceTokenizer:
        """Read a folder written by `HuggingFaceTokenizer.save`; a run keeps its original chat template."""
        return self._read(Folder(folder), FILE, None, saved_moment(folder))

    def _read(self, source: Source, name: str, chat_template: str | None, moment: str) -> HuggingFaceTokenizer:
        files = {FILE: _tokenizer_of(source, name)}
        files |= {other: data for other in (CONFIG, SPECIAL, GENERATION) if (data := source.text(other)) is not None}
        if GENERATION not in files and (model := source.text(MODEL)) is not None:
            named = _json(f"{source.name}/{MODEL}", model)
            known = {key: named[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in named}
            files[GENERATION] = json.dumps(known).encode()
        vocabulary = _open(files[FILE], f"{source.name}/{name}")
        settings = {name: _json(f"{source.name}/{name}", data) for name, data in files.items() if name != FILE}
        tokens = _special_tokens(settings.get(CONFIG, {}), settings.get(SPECIAL, {}))
        place, text = self._template(source, chat_template, settings.get(CONFIG, {}))
        template = None
        if text:  # one of nothing would make every prompt empty
            template = ChatTemplate(
                source=text,
                place=place,
                tokens=tokens,
                options=self.chat_options,
                moment=moment,
                keep_reasoning=self.keep_reasoning,
            )
        generation = settings.get(GENERATION, {})
        eos_ids = self._eos_ids(vocabulary, tokens, generation, template, source.name)
        if not set(eos_ids) <= set(_listed(generation)):  # other programs end a completion where an export says
            files[GENERATION] = json.dumps({**generation, "eos_token_id": list(eos_ids)}, indent=2).encode()
        return HuggingFaceTokenizer(
            files=files,
            template=template,
            eos_ids=eos_ids,
            pad_id=_pad_id(vocabulary, tokens, generation, eos_ids),
            bos=_bos(vocabulary, tokens, settings.get(CONFIG, {}), f"{source.name}/{CONFIG}"),
        )

    def _template(self, source: Source, replacement: str | None, config: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return where the chat template comes from and its text: the setting's file, its own file, or the config."""
        if (found := read_source(None, replacement, "tokenizer.huggingface.chat_template")) is not None:
            return found
        if (own := source.text(TEMPLATE)) is not None:
            return f"{source.name}/{TEMPLATE}", _text(f"{source.name}/{TEMPLATE}", own)
        return f"{source.name}/{CONFIG}", _of_config(f"{source.name}/{CONFIG}", config)

    def _eos_ids(
        self,
        vocabulary: Tokenizer,
        tokens: Mapping[str, str],
        generation: Mapping[str, Any],
        template: ChatTemplate | None,
        name: str,
    ) -> tuple[int, ...]:
        if self.eos_tokens:
            return tuple(_id(vocabulary, token, "tokenizer.huggingface.eos_tokens") for token in self.eos_tokens)
        found = [_id(vocabulary, tokens["eos_token"], f"{name}/{CONFIG}")] if "eos_token" in tokens else []
        found += _listed(generation)
        strange = [number for number in found if not _is_id(vocabulary, number)]
        if strange:
            raise DataError(
                f"'{name}': eos_token_id = {strange[0]!r} is not an id of its {FILE}, which has"
                f" {vocabulary.get_vocab_size():,}; is that the tokenizer of another model?"
            )
        last = _end_of_turn(vocabulary, template, found)
        if not last and not found:
            raise DataError(
                f"'{name}' does not say which token ends a completion: neither {CONFIG} nor {GENERATION} names one;"
                " name it with --set tokenizer.huggingface.eos_tokens=('TOKEN',)"
            )
        return tuple(dict.fromkeys([*last, *found]))


def _processor(self: HuggingFaceTokenizer) -> Tokenizer:
    return _open(self.files[FILE], FILE)


def _specials(self: HuggingFaceTokenizer) -> list[tuple[str, str]]:
    """Return the first character and the rest, both escaped, of the special tokens that a text can spell out.

    One of a single character cannot be parted, so it is not among them.
    """
    added = self._processor.get_added_tokens_decoder().items()
    found = {token.content for number, token in added if token.special or number in self.eos_ids}
    return [(re.escape(token[0]), re.escape(token[1:])) for token in sorted(found) if len(token) > 1]


def _spelt(self: HuggingFaceTokenizer) -> re.Pattern[str]:
    """Return a pattern of the first characters of special tokens."""
    return re.compile("|".join(f"{first}(?={rest})" for first, rest in _specials(self)) or "(?!)")


def _guarded(self: HuggingFaceTokenizer) -> re.Pattern[str]:
    """Return a pattern of the guards in special tokens that are text."""
    return re.compile("|".join(f"(?<={first}){GUARD}(?={rest})" for first, rest in _specials(self)) or "(?!)")


def _size(self: HuggingFaceTokenizer) -> int:
    return max(self._processor.get_vocab(with_added_tokens=True).values()) + 1


@attrs.frozen(kw_only=True)
class HuggingFaceTokenizer:
    """An open `tokenizer.json`; see `dovetail.protocols.Tokenizer`. Two are equal if their files and settings are.

    `vocab_size` is the largest id plus one, even if ids are missing. `bos` is the text in front of a plain prompt.
    `files` are those of the source; only `generation_config.json` is rewritten, if it lacks one of `eos_ids`.
    """

    files: Mapping[str, bytes] = attrs.field(repr=False)
    template: ChatTemplate | None = attrs.field(repr=False)
    eos_ids: tuple[int, ...]
    pad_id: int
    bos: str
    _processor: Any = attrs.field(init=False, repr=False, eq=False, default=attrs.Factory(_processor, takes_self=True))
    _spelt: re.Pattern[str] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_spelt, takes_self=True)
    )
    _guarded: re.Pattern[str] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_guarded, takes_self=True)
    )
    vocab_size: int = attrs.field(init=False, eq=False, default=attrs.Factory(_size, takes_self=True))

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of every piece, added tokens included."""
        return self._processor.get_vocab(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Special tokens spelt out in it become special tokens; no others are added.

        Those with the guard of `as_text` are read as text.
        """
        if GUARD not in text:
            return _encoded(self._processor, text, FILE)
        return [number for part in self._guarded.split(text) for number in _encoded(self._processor, part, FILE)]

    def as_text(self, value: Any) -> Any:
        """Return a text, or the texts in a list or a dict, with a guard in every special token that is spelt out."""
        if isinstance(value, str):
            return self._spelt.sub(rf"\g<0>{GUARD}", value)
        if isinstance(value, Mapping):
            return {self.as_text(key): self.as_text(each) for key, each in value.items()}
        return [self.as_text(each) for each in value] if isinstance(value, list | tuple) else value

    def _others_as_text(self, messages: Sequence[Message]) -> list[Message]:
        """Guard all messages but the assistant's: some models mark their own reasoning with special tokens."""
        return [each if each.get("role") == ASSISTANT else self.as_text(each) for each in messages]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids without special tokens and ids out of range."""
        size = self.vocab_size
        with _failures(f"{FILE}: it cannot decode {listing(map(str, ids), 8)}"):
            return self._processor.decode([int(token) for token in ids if 0 <= token < size], skip_special_tokens=True)

    def render(self, prompt: str | Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return a plain prompt with its beginning-of-sequence token, or a conversation in the chat template.

        Raises:
            DataError: for messages, if there is no chat template or the template refuses them.
        """
        if isinstance(prompt, str):
            return prompt if prompt.startswith(self.bos) else self.bos + prompt
        if self.template is None:
            raise DataError(
                "the task gives messages, but the tokenizer has no chat template: name one with"
                " --set tokenizer.huggingface.chat_template=FILE"
            )
        check_messages(prompt)
        return self.template.render(self._others_as_text(prompt), tools=self.as_text(tools))

    def bridge(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids between an assistant's turn and its next one; see `dovetail.protocols.Tokenizer`."""
        if self.template is None:
            return self.encode(self.as_text("".join(str(message["content"]) for message in messages)))
        between = self.template.between(self._others_as_text(messages))
        return after_turn(self.encode(between), self.eos_ids, self.template.place)

    def save(self, folder: Path) -> None:
        """Write the files, and the chat template in use."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        if self.template is not None:
            self.template.save(folder)


def read_vocabulary(data: bytes, place: str) -> dict[str, int]:
    """Return the id of every piece of a `tokenizer.json`.

    Raises:
        DovetailError: if it cannot be read, or the `tokenizers` library is not installed.
    """
    return _open(data, place).get_vocab(with_added_tokens=True)


def _tokenizer_of(source: Source, name: str) -> bytes:
    data = source.text(name)
    if data is None:
        if isinstance(source, Folder) and not source.path.is_dir():
            source.config()  # says that there is no such folder, as the model does
        model = "tokenizer.model"
        instead = "" if source.text(model) is None else f"; it holds {model}: that is tokenizer 'sentencepiece'"
        raise DataError(f"'{source.name}' has no {name}{instead}")
    return data


def _open(data: bytes, place: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(needs("tokenizer.huggingface", "the tokenizers library", "hf")) from error
    with _failures(f"{place}: it does not hold a readable tokenizer"):
        opened = Tokenizer.from_buffer(data)
        opened.no_truncation()
        opened.no_padding()
    settings = _json(place, data)
    _check_growth(place, settings)
    if (settings.get("model") or {}).get("dropout"):  # chance would give a text other ids every time
        opened.model.dropout = None
    _encoded(opened, PROBE[1]["content"], place)
    return opened


@contextlib.contextmanager
def _failures(what: str) -> Iterator[None]:
    """Say what could not be done: the library raises bare exceptions, and its panics are not even exceptions."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{what}: {' '.join(str(error).split())}") from error


def _encoded(tokenizer: Tokenizer, text: str, place: str) -> list[int]:
    """Return the ids of a text; a model without an unknown token, for example, cannot encode every text."""
    with _failures(f"{place}: it cannot encode {text[:80]!r}"):
        return tokenizer.encode(text, add_special_tokens=False).ids


def _check_growth(place: str, settings: Mapping[str, Any]) -> None:
    """Refuse replacements that make a short text fill the memory."""
    for stage, several in (("normalizer", "normalizers"), ("decoder", "decoders")):
        chosen = settings.get(stage) or {}
        growth = 1
        for part in chosen.get(several, [chosen]):
            growth *= 1 + len(str(part.get("content", part.get("prepend", ""))))
        if growth > MOST_GROWTH:
            raise DataError(
                f"{place}: the replacements of its {stage} can make more than {MOST_GROWTH:,} characters of one"
            )


def _text(place: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 text: {error}") from error


def _json(place: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{place} holds a JSON {type(found).__name__}, not an object")
    return found


def _of_config(place: str, config: Mapping[str, Any]) -> str | None:
    """Return the template in a `tokenizer_config.json`: a text, or the default in a list of named templates."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, Mapping) and each.get("name") == "default"]
        template = named[0].get("template", named[0]) if named else None if all(template) else template
    if template is not None and not isinstance(template, str):
        raise DataError(
            f"{place}: chat_template is {template!r:.80}; it must be a text, or a list of"
            " {'name': ..., 'template': ...}"
        )
    return template


def _special_tokens(*settings: Mapping[str, Any]) -> dict[str, str]:
    """Return special tokens by name; earlier files take precedence, and a token is a text or an object."""
    found: dict[str, str] = {}
    for each in settings:
        for name, token in each.items():
            text = token.get("content") if isinstance(token, Mapping) else token
            if name.endswith("_token") and isinstance(text, str):
                found.setdefault(name, text)
    return found


def _id(vocabulary: Tokenizer, token: str, place: str) -> int:
    found = vocabulary.token_to_id(token) if _is_unicode(token) else None
    if found is None:
        added = [each.content for each in vocabulary.get_added_tokens_decoder().values()]
        raise ConfigError(
            f"{place}: the token {token!r} is not in the vocabulary.{nearest(token, added)} Special and added tokens:"
            f" {listing(added)}"
        )
    return found


def _end_of_turn(vocabulary: Tokenizer, template: ChatTemplate | None, eos_ids: Sequence[int]) -> list[int]:
    """Return the token with which the template ends an assistant's turn; empty if it writes none.

    It is the special token that follows the assistant's text, which the files of base models do not list, or else the
    first of `eos_ids` in what follows. Added tokens that are not special may be mere text, such as two line breaks.
    """
    if template is None:
        return []
    try:
        rest = template.render(PROBE, add_generation_prompt=False).partition(PROBE[1]["content"])[2]
    except DataError:  # a template for conversations of another kind
        return []
    written = _encoded(vocabulary, rest, FILE)
    if written and written[0] in _special_ids(vocabulary):
        return written[:1]
    return [token for token in written if token in eos_ids][:1]


def _special_ids(vocabulary: Tokenizer) -> set[int]:
    return {number for number, token in vocabulary.get_added_tokens_decoder().items() if token.special}


def _listed(generation: Mapping[str, Any]) -> list[Any]:
    """Return the tokens that end a completion according to a `generation_config.json`."""
    listed = generation.get("eos_token_id")
    return listed if isinstance(listed, list) else [] if listed is None else [listed]


def _pad_id(
    vocabulary: Tokenizer, tokens: Mapping[str, str], generation: Mapping[str, Any], eos_ids: Sequence[int]
) -> int:
    """Return the padding id; without one that exists any id will do, because padding is always masked."""
    token = tokens.get("pad_token", "")
    named = vocabulary.token_to_id(token) if _is_unicode(token) else None
    listed: Any = generation.get("pad_token_id")  # some models have -1 here
    if named is not None:
        return named
    return listed if _is_id(vocabulary, listed) else eos_ids[0]


def _is_id(vocabulary: Tokenizer, number: Any) -> bool:
    """Return whether a JSON value is the id of a token."""
    is_number = isinstance(number, int) and not isinstance(number, bool)
    return is_number and 0 <= number < LARGEST_ID and vocabulary.id_to_token(number) is not None


def _is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can hold."""
    return text.encode(errors="replace").decode() == text


def _bos(vocabulary: Tokenizer, tokens: Mapping[str, str], config: Mapping[str, Any], place: str) -> str:
    """Return the text with which texts begin: the config decides, or else what the tokenizer itself does."""
    token = tokens.get("bos_token", "")
    if not token:
        return ""
    if isinstance(said := config.get("add_bos_token"), bool):
        if said:
            _id(vocabulary, token, place)
        return token if said else ""
    with _failures(f"{FILE}: it cannot encode an empty text"):
        done = vocabulary.encode("", add_special_tokens=True).ids
    return token if done and done[0] == _id(vocabulary, token, place) else ""
