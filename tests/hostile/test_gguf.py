"""GGUF files whose headers lie: one line that says what is wrong, and nothing is read beyond the file."""

import re
import struct

import pytest
from tests.hostile.case import attempt_call

from dovetail.errors import DovetailError
from dovetail_model.source.gguf.file import open_gguf
from dovetail_model.tokenizer.huggingface import HuggingFace

pytest.importorskip("gguf")

HUGE = 2**63


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def value(key: bytes, type_: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_) + data


def number(key: bytes, of: int) -> bytes:
    return value(key, 4, struct.pack("<I", of))


def listed(inner: int, count: int, data: bytes = b"") -> bytes:
    return value(b"k", 9, struct.pack("<IQ", inner, count) + data)


def tensor(*shape: int, name: bytes = b"w", type_: int = 0, offset: int = 0, rank: int | None = None) -> bytes:
    dimensions = struct.pack(f"<{len(shape)}Q", *shape)
    return (
        text(name)
        + struct.pack("<I", len(shape) if rank is None else rank)
        + dimensions
        + struct.pack("<IQ", type_, offset)
    )


def file(*parts: bytes, tensors: int = 0, values: int = 0, version: int = 3, data: int = 64) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values) + b"".join(parts) + bytes(data)


CASES = {
    "an empty file": (b"", "not a GGUF file"),
    "another format": (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
    "the magic word alone": (b"GGUF", "cut short: 4 bytes of at least 8"),
    "half of the counts": (file(data=0)[:20], "cut short: 20 bytes of at least 24"),
    "version 0": (file(version=0), "GGUF version 0"),
    "a later version": (file(version=9), "GGUF version 9; supported are 2 and 3"),
    "big-endian": (file(version=3 << 24), "big-endian"),
    "2^63 values": (file(values=HUGE), "cut short|twice|unknown type"),
    "2^63 tensors": (file(tensors=HUGE), "cut short|twice|no numbers"),
    "a key of 2^63 bytes": (file(text(b"k", HUGE), values=1), "cut short"),
    "a key of 2^64 - 1 bytes": (file(text(b"k", 2**64 - 1), values=1), "cut short"),
    "a text beyond the file": (file(value(b"k", 8, text(b"x", 5000)), values=1), "cut short"),
    "an unknown type of value": (file(value(b"k", 99, b""), values=1), "unknown type 99"),
    "a list of an unknown type": (file(listed(99, 1), values=1), "unknown type 99"),
    "a list of 2^60 numbers": (file(listed(10, 2**60), values=1), "cut short"),
    "a list of 2^63 numbers": (file(listed(10, HUGE), values=1), "cut short"),
    "a list of 2^63 bytes": (file(listed(0, HUGE), values=1), "cut short"),
    "a list of 2^63 texts": (file(listed(8, HUGE), values=1), "cut short"),
    "lists 5,000 deep": (file(listed(9, 1, struct.pack("<IQ", 9, 1) * 5000), values=1), "more than 8 lists deep"),
    "a key twice": (file(number(b"k", 1), number(b"k", 2), values=2), "'k' is there twice"),
    "an alignment of zero": (file(number(b"general.alignment", 0), values=1), "general.alignment = 0"),
    "an alignment of text": (file(value(b"general.alignment", 8, text(b"x")), values=1), "general.alignment = 'x'"),
    "parts that are text": (file(value(b"split.count", 8, text(b"2")), values=1), "split.count = '2'"),
    "one of two parts": (file(number(b"split.count", 2), values=1), "one of 2 parts"),
    "a tensor twice": (file(tensor(4), tensor(4), tensors=2), "'w' is there twice"),
    "a tensor without dimensions": (file(tensor(), tensors=1), r"w has the shape \[\]"),
    "a dimension of zero": (file(tensor(4, 0), tensors=1), r"w has the shape \[0, 4\]"),
    "2^32 - 1 dimensions": (file(tensor(4, rank=2**32 - 1), tensors=1), "cut short"),
    "a shape beyond the file": (file(tensor(1000), tensors=1), "cut short"),
    "a shape beyond 64 bits": (file(tensor(2**40, 2**40), tensors=1), "cut short"),
    "a shape that comes round to nothing": (file(tensor(2**62, 4), tensors=1), "cut short"),
    "an offset beyond the file": (file(tensor(4, offset=5000), tensors=1), "cut short"),
    "an offset of 2^64 - 1": (file(tensor(4, offset=2**64 - 1), tensors=1), "cut short"),
    "an unknown type of tensor": (file(tensor(4, type_=4000), tensors=1), "w is of type number 4000"),
    "half a block": (file(tensor(4, type_=2), tensors=1), "rows of 4, and type Q4_0 comes in blocks of 32"),
    "a name of terminal codes": (file(tensor(name=b"\x1b[2J"), tensors=1), "has the shape"),
}


def said(key: str, of: str | bytes) -> bytes:
    return value(key.encode(), 8, text(of if isinstance(of, bytes) else of.encode()))


def texts(key: str, *of: str | bytes) -> bytes:
    parts = [text(each if isinstance(each, bytes) else each.encode()) for each in of]
    return value(b"tokenizer.ggml." + key.encode(), 9, struct.pack("<IQ", 8, len(of)) + b"".join(parts))


def numbers(key: str, form: str, *of: float) -> bytes:
    data = struct.pack(f"<IQ{len(of)}{form}", {"i": 5, "f": 6}[form], len(of), *of)
    return value(b"tokenizer.ggml." + key.encode(), 9, data)


def words(**changes: bytes | None) -> bytes:
    """Return a file with a tokenizer of six tokens and no weights."""
    parts: dict[str, bytes | None] = {
        "architecture": said("general.architecture", "llama"),
        "model": said("tokenizer.ggml.model", "llama"),
        "tokens": texts("tokens", "<unk>", "<s>", "</s>", "a", "b", "ab"),
        "scores": numbers("scores", "f", *[0.0] * 6),
        "types": numbers("token_type", "i", 2, 3, 3, 1, 1, 1),
        "eos": number(b"tokenizer.ggml.eos_token_id", 2),
        **changes,
    }
    kept = [part for part in parts.values() if part is not None]
    return file(*kept, values=len(kept))


def merged(merges: bytes | None) -> bytes:
    return words(model=said("tokenizer.ggml.model", "gpt2"), merges=merges)


TOKENIZERS = {
    "no tokens": (words(tokens=None), "no 'tokenizer.ggml.tokens'"),
    "tokens that are numbers": (words(tokens=numbers("tokens", "i", 1, 2)), r"tokens\[0\] = 1; it must be UTF-8 text"),
    "an empty list": (words(tokens=texts("tokens"), scores=texts("scores")), "unknown_token_id = 0, but there are 0 tokens"),
    "tokens of bytes": (words(tokens=texts("tokens", b"\xff")), r"tokens\[0\] = .*UTF-8"),
    "a token of 20,000 characters": (words(tokens=texts("tokens", "a" * 20_000)), "20,000 characters; at most 10,000"),
    "no scores": (words(scores=None), "no 'tokenizer.ggml.scores'"),
    "too few scores": (words(scores=numbers("scores", "f", 0.0)), "scores holds 1 values; it must be 6 numbers"),
    "scores of text": (words(scores=texts("scores", *"abcdef")), "scores holds 6 values; it must be 6 numbers"),
    "an end out of range": (words(eos=number(b"tokenizer.ggml.eos_token_id", 6)), "eos_token_id = 6, but there are 6 tokens"),
    "a beginning out of range": (words(bos=number(b"tokenizer.ggml.bos_token_id", 2**32 - 1)), "bos_token_id = 4294967295"),
    "an unknown token out of range": (words(u=number(b"tokenizer.ggml.unknown_token_id", 9)), "unknown_token_id = 9"),
    "an end of text": (words(eos=said("tokenizer.ggml.eos_token_id", "x")), "eos_token_id = 'x'; it must be of type int"),
    "no end": (words(eos=None), "does not say which token ends a completion"),
    "an unknown model": (words(model=said("tokenizer.ggml.model", "x")), "model = 'x' is not supported. Supported: gpt2"),
    "no merges": (merged(None), "no 'tokenizer.ggml.merges'"),
    "a merge of one": (merged(texts("merges", "a")), "cannot be made: .*out of vocabulary"),
    "a merge of what is not there": (merged(texts("merges", "x y")), "cannot be made: .*`x`"),
    "merges of numbers": (merged(numbers("merges", "i", 1)), r"merges\[0\] = 1; it must be UTF-8 text"),
    "a template of a number": (words(t=number(b"tokenizer.chat_template", 3)), "chat_template = 3; it must be of type str"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "pattern"), TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer_is_refused_in_a_line(content, pattern, tmp_path):
    (tmp_path / "model.gguf").write_bytes(content)
    path = str(tmp_path / "model.gguf")
    attempt_call(lambda: HuggingFace(path=path).make([]), DovetailError, f"{path}.*({pattern})")


def test_the_tokenizer_that_they_change_is_one(tmp_path):
    (tmp_path / "model.gguf").write_bytes(words())
    assert HuggingFace(path=str(tmp_path / "model.gguf")).make([]).eos_ids == (2,)


@pytest.mark.parametrize(("content", "pattern"), CASES.values(), ids=CASES)
def test_it_is_refused_in_a_line(content, pattern, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(DovetailError) as refused:
        open_gguf(path)
    assert re.search(pattern, str(refused.value)), refused.value
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
