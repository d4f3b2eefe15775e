"""Creates the files of a Hugging Face tokenizer from a GGUF file's metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import ConfigError, DovetailError, listing
from dovetail.extras import needs
from dovetail_model.source.gguf.config import token_ids
from dovetail_model.source.gguf.file import GgufFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTROL, USER_DEFINED = 3, 4
"""The types of tokens that are never split wherever they occur in a text: special ones, and others."""
SPACE: Final = "\u2581"
LONGEST: Final = 10_000
"""The greatest number of characters of a token; finding its merges takes time in the square of it."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKED = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_END_OR_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_MARKED}\p{{L}}+|\p{{N}}{{1,3}}|{_END}"
_QWEN2 = rf"{_CONTRACTIONS}|{_MARKED}\p{{L}}+|\p{{N}}|{_END}"
_TEKKEN = rf"{_MARKED}{_UPPER}*{_LOWER}+|{_MARKED}{_UPPER}+{_LOWER}*|\p{{N}}|{_END_OR_SLASH}"

SPLITS: Final[Mapping[str, str | None]] = {
    "deepseek-r1-qwen": _QWEN2,
    "default": None,
    "gpt-2": None,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "smollm": None,
    "tekken": _TEKKEN,
}
"""`tokenizer.ggml.pre` -> the regular expression that splits a text before BPE; None means GPT-2's."""
DIGIT_BY_DIGIT: Final = ("smollm",)
"""The values of `tokenizer.ggml.pre` with which digits are split off first, each on its own."""
WHOLE_FIRST: Final = ("llama-bpe", "llama-v3", "llama3", "tekken")
"""The values with which a match that is in the vocabulary becomes one token, regardless of the merges."""


def tokenizer_files(file: GgufFile) -> dict[str, bytes]:
    """Return `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` as a folder would have them.

    The result is empty for a file without a tokenizer.

    Raises:
        ConfigError: for a tokenizer that is not supported.
    """
    if "tokenizer.ggml.model" not in file.metadata:
        return {}
    kind = file.get("tokenizer.ggml.model", str)
    if kind not in MAKERS:
        raise file.refuse(f"tokenizer.ggml.model = {kind!r} is not supported. Supported: {listing(MAKERS)}")
    try:
        tokenizer = MAKERS[kind](file)
    except ImportError as error:
        raise ConfigError(needs("the tokenizer of a GGUF file", "the tokenizers library", "hf")) from error
    except DovetailError:
        raise
    except Exception as error:  # the library raises bare exceptions
        raise file.refuse(f"its tokenizer cannot be made: {' '.join(str(error).split())}") from error
    _add_whole_tokens(tokenizer, file)
    tokens, ids = _tokens(file), token_ids(file)
    for name, number in ids.items():
        _token(file, f"{name}_token_id", number)
    config = {
        **{f"{name}_token": tokens[number] for name, number in ids.items()},
        "add_bos_token": file.get("tokenizer.ggml.add_bos_token", bool, _begins_with_bos(file, kind)),
        "chat_template": file.get("tokenizer.chat_template", str, ""),
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.get(f"{file.get('general.architecture', str)}.context_length", int, 0),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    ends = [file.get(f"tokenizer.ggml.{name}_token_id", int, -1) for name in ("eos", "eot", "eom")]
    generation = {f"{name}_token_id": number for name, number in ids.items()}
    generation |= {"eos_token_id": list(dict.fromkeys(number for number in ends if number >= 0))}
    written = {"tokenizer_config.json": config, "generation_config.json": generation}
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        **{name: json.dumps({k: v for k, v in values.items() if v != ""}).encode() for name, values in written.items()},
    }


def _byte_level(file: GgufFile) -> Tokenizer:
    """Return a byte-level BPE like GPT-2's; `tokenizer.ggml.pre` determines how a text is split first."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    split = file.get("tokenizer.ggml.pre", str, "default")
    if split not in SPLITS:
        raise file.refuse(f"tokenizer.ggml.pre = {split!r} is not supported. Supported: {listing(SPLITS)}")
    pattern = SPLITS[split]
    before: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if split in DIGIT_BY_DIGIT else []
    before += [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), behavior="isolated")]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    vocabulary = {token: number for number, token in enumerate(_tokens(file))}
    merges = [_pair(merge) for merge in _strings(file, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=split in WHOLE_FIRST))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, last])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    first, _, second = merge.partition(" ")
    return first, second


def _sentencepiece(file: GgufFile) -> Tokenizer:
    """Return a sentencepiece BPE, with spaces as `▁`; the file has scores, from which the merges are derived.

    Gemma is an exception: no space is put in front of a text, and merges are in the order of the vocabulary.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    is_gemma = file.get("general.architecture", str).startswith("gemma")
    tokens = [_as_stored(token) for token in _tokens(file)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    ranks = [-float(n) for n in range(len(tokens))] if is_gemma else _scores(file, len(tokens))
    merges = _merges(vocabulary, ranks)
    unknown = _as_stored(_token(file, "unknown_token_id", file.get("tokenizer.ggml.unknown_token_id", int, 0)))
    model = models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces: list[Any] = [normalizers.Replace(" ", SPACE)]
    strip: list[Any] = []
    if is_gemma:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif file.get("tokenizer.ggml.add_space_prefix", bool, True):
        spaces.insert(0, normalizers.Prepend(SPACE))
        strip.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


MAKERS: Final[Mapping[str, Callable[[GgufFile], Tokenizer]]] = {"gpt2": _byte_level, "llama": _sentencepiece}


def _as_stored(token: str) -> str:
    """Write runs of spaces with `▁` like all other spaces; some of Gemma's files do not."""
    return SPACE * len(token) if token and not token.strip(" ") else token


def _merges(vocabulary: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return the pairs of pieces that join to a piece, ordered by the score of that piece, then by their parts."""
    found: list[tuple[float, int, int, str, str]] = []
    for token, number in vocabulary.items():
        for cut in range(1, len(token)):
            first, second = token[:cut], token[cut:]
            if first in vocabulary and second in vocabulary:
                found.append((-scores[number], vocabulary[first], vocabulary[second], first, second))
    found.sort(key=lambda pair: pair[:3])
    return [(first, second) for *_, first, second in found]


def _add_whole_tokens(tokenizer: Tokenizer, file: GgufFile) -> None:
    """Register the tokens that the file marks, so that they are never split wherever they occur in a text."""
    from tokenizers import AddedToken

    types = file.get("tokenizer.ggml.token_type", list, [])
    marked = list(zip(_tokens(file), types, strict=False))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in marked if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in marked if k == USER_DEFINED])


def _begins_with_bos(file: GgufFile, kind: str) -> bool:
    """Return whether texts begin with BOS; if the file does not say, llama.cpp's default applies."""
    return kind == "llama" or file.get("tokenizer.ggml.pre", str, "default") in ("llama-bpe", "llama-v3", "llama3")


def _tokens(file: GgufFile) -> list[str]:
    return _strings(file, "tokenizer.ggml.tokens")


def _token(file: GgufFile, name: str, number: int) -> str:
    """Return the token with a number that the file gives a name."""
    tokens = _tokens(file)
    if number >= len(tokens):
        raise file.refuse(f"tokenizer.ggml.{name} = {number}, but there are {len(tokens):,} tokens, counted from 0")
    return tokens[number]


def _scores(file: GgufFile, tokens: int) -> list[float]:
    scores = file.get("tokenizer.ggml.scores", list)
    if len(scores) != tokens or not all(isinstance(score, float) for score in scores):
        raise file.refuse(
            f"tokenizer.ggml.scores holds {len(scores):,} values; it must be {tokens:,} numbers, one a token"
        )
    return scores


def _strings(file: GgufFile, key: str) -> list[str]:
    found = file.get(key, list)
    for number, text in enumerate(found):
        if not isinstance(text, str) or text.encode(errors="replace").decode() != text:
            raise file.refuse(f"{key}[{number}] = {text!r:.80}; it must be UTF-8 text")
        if len(text) > LONGEST:
            raise file.refuse(f"{key}[{number}] has {len(text):,} characters; at most {LONGEST:,}")
    return found
