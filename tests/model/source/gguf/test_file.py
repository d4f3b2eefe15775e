"""GGUF files: every type of tensor is read as the library reads it, and what is wrong with a file is one line."""

import os
import sys

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from tests.model.gguf_files import write_fixture, write_gguf

from dovetail.errors import ConfigError
from dovetail_model.source.gguf.file import DENSE, QUANTISED, open_gguf

SHAPE = (3, 2, 256)


def blocks(kind, rng):
    """Bytes that could be blocks of this type: any, with half-precision scales that are not infinite."""
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (*SHAPE[:-1], SHAPE[-1] // numbers, size), np.uint8)
    return np.where(data & 0x7C == 0x7C, data & 0x3F, data).reshape(*SHAPE[:-1], -1)


def test_the_types_are_the_library_s():
    undone = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "Q1_0", "NVFP4"}
    assert {kind.name for kind in Type} - undone == {*DENSE, *QUANTISED}


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_tensor_is_what_the_library_makes_of_it(name, tmp_path):
    kind = Type[name]
    first, second = (blocks(kind, np.random.default_rng(seed)) for seed in (1, 2))
    file = write_gguf(tmp_path / "t.gguf", "llama", {"a": first, "b": second}, {}, types={"a": kind, "b": kind})
    tensors = open_gguf(file).tensors
    for tensor, data in ((tensors["a"], first), (tensors["b"], second)):
        read = tensor.read()
        assert (read.shape, read.dtype) == (tensor.shape, tensor.dtype) == (SHAPE, np.float32)
        np.testing.assert_array_equal(read, gguf.dequantize(data, kind).reshape(SHAPE))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_dense_tensors_are_read_as_they_are(name, tmp_path):
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32).astype(DENSE[name])
    stored = values.view(np.uint8) if name == "BF16" else values
    file = write_gguf(tmp_path / "t.gguf", "llama", {"a": stored}, {}, types={"a": Type[name]})
    read = open_gguf(file).tensors["a"].read()
    assert read.dtype == DENSE[name]
    np.testing.assert_array_equal(read, values)


def test_blocks_by_hand(tmp_path):
    def half(value):
        return list(np.float16(value).tobytes())

    nibbles = [low | high << 4 for low, high in zip(range(16), reversed(range(16)), strict=True)]
    stored = {
        "q4_0": (Type.Q4_0, [*half(0.5), *nibbles], [0.5 * (n - 8) for n in (*range(16), *reversed(range(16)))]),
        "q4_1": (Type.Q4_1, [*half(2), *half(-3), *nibbles], [2 * n - 3 for n in (*range(16), *reversed(range(16)))]),
        "q8_0": (Type.Q8_0, [*half(0.25), *range(16), *range(240, 256)], [n / 4 for n in (*range(16), *range(-16, 0))]),
    }
    arrays = {name: np.array([data], np.uint8) for name, (_, data, _) in stored.items()}
    file = write_gguf(
        tmp_path / "t.gguf", "llama", arrays, {}, types={name: kind for name, (kind, *_) in stored.items()}
    )
    for name, tensor in open_gguf(file).tensors.items():
        np.testing.assert_array_equal(tensor.read(), [stored[name][2]])


def test_metadata_is_read(tmp_path):
    said = {"a": 7, "b": 1e-5, "c": True, "d": "text", "tokenizer.e": ["x", "é"], "tokenizer.f": [1.5, 2.0]}
    file = open_gguf(write_gguf(tmp_path / "m.gguf", "llama", {}, said))
    assert file.metadata == {
        "general.architecture": "llama",
        "llama.a": 7,
        "llama.b": 1e-5,
        "llama.c": True,
        "llama.d": "text",
        "tokenizer.e": ["x", "é"],
        "tokenizer.f": [1.5, 2.0],
    }
    assert file.get("llama.a", float) == 7.0
    assert file.get("llama.z", int, 3) == 3
    with pytest.raises(ConfigError, match=r"m\.gguf: its metadata has no 'llama.z'"):
        file.get("llama.z", int)
    with pytest.raises(ConfigError, match=r"m\.gguf: llama.d = 'text'; it must be of type int"):
        file.get("llama.d", int)


@pytest.mark.parametrize("kept", [3, 11, 40, 700, -1])
def test_a_file_cut_short_is_refused_with_its_bytes(kept, tmp_path):
    file = write_fixture(tmp_path / "m.gguf", "llama")
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    length = len(whole[:kept])
    said = "not a GGUF file" if length < 4 else rf"cut short: {length:,} bytes of at least [\d,]+; download it again"
    with pytest.raises(ConfigError, match=said):
        open_gguf(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04", "not a GGUF file: it does not begin with 'GGUF'"),
        (b"GGUF\x01\x00\x00\x00", "GGUF version 1; supported are 2 and 3"),
        (b"GGUF\x00\x00\x00\x03", r"GGUF version 50331648 \(written on a big-endian machine\)"),
        (
            b"GGUF\x03\x00\x00\x00" + (0).to_bytes(8, "little") + (1).to_bytes(8, "little") + bytes(8) + b"\x63\0\0\0",
            "a value of its metadata is of the unknown type 99; is it damaged",
        ),
    ],
)
def test_other_files_are_refused(data, message, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        open_gguf(file)


def test_tensors_of_other_types_are_refused_with_those_there_are(tmp_path):
    file = write_gguf(tmp_path / "m.gguf", "llama", {"a": np.zeros((2, 32), np.int32)}, {})
    with pytest.raises(ConfigError, match=r"m\.gguf: a is of type I32; supported are BF16, F16, F32, F64, IQ1_M, "):
        open_gguf(file)
    data = bytearray(file.read_bytes())
    at = data.rindex(int(Type.I32).to_bytes(4, "little") + bytes(8))
    data[at] = 99
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"m\.gguf: a is of type number 99; supported are"):
        open_gguf(file)


def test_without_the_library_the_message_says_what_to_install(tmp_path, monkeypatch):
    file = write_fixture(tmp_path / "m.gguf", "llama")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"GGUF files needs the gguf library: pip install .*\[gguf\]"):
        open_gguf(file)


def test_a_file_that_becomes_shorter_after_it_was_opened_is_refused(tmp_path):
    file = write_gguf(tmp_path / "t.gguf", "llama", {"a": np.ones((4, 64), np.float32)}, {})
    tensor = open_gguf(file).tensors["a"]
    os.truncate(file, tensor.start + 8)
    with pytest.raises(ConfigError, match="t.gguf: has become shorter while it was read"):
        tensor.read()
