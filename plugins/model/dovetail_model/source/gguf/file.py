"""Reads GGUF files: first everything except the tensors, which are later read and dequantised one at a time.

A file consists of a magic word, a version and two counts; the metadata (a key, a type and a value each); the name,
shape, type and offset of every tensor; and the tensors' bytes.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

import attrs
import ml_dtypes
import numpy as np

from dovetail.errors import ConfigError, listing
from dovetail.extras import needs
from dovetail_model.huggingface.safetensors import read_bytes

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DENSE: Final = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype(np.float64),
}
"""The types that are stored unquantised."""
QUANTISED: Final = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4"),
)
"""The types that are stored in blocks, which the `gguf` package dequantises to float32."""
ALIGNMENT: Final = 32
DEEPEST: Final = 8
"""Lists within lists in the metadata; real files have one."""

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

T = TypeVar("T")
_MISSING: Any = object()


@attrs.frozen
class GgufTensor:
    """A tensor in a file, not yet read; quantised tensors become float32 when they are read."""

    file: Path
    type: str
    shape: tuple[int, ...]
    start: int
    bytes: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the array that `read` returns."""
        return DENSE.get(self.type, DENSE["F32"])

    def read(self) -> np.ndarray:
        """Return a new array with the tensor's values."""
        data = read_bytes(self.file, self.start, self.bytes)
        if self.type in DENSE:
            return data.view(self.dtype).reshape(self.shape)
        library = gguf_library()
        rows = data.reshape(*self.shape[:-1], -1)
        return library.dequantize(rows, library.GGMLQuantizationType[self.type]).reshape(self.shape)


@attrs.frozen
class GgufFile:
    """The metadata of a file, and its tensors by name."""

    path: Path
    metadata: Mapping[str, Any] = attrs.field(repr=False)
    tensors: Mapping[str, GgufTensor] = attrs.field(repr=False)

    def get(self, key: str, kind: type[T], default: T = _MISSING) -> T:
        """Return a value of the metadata, or the default if there is none.

        Raises:
            ConfigError: if it has another type, or is missing without a default.
        """
        if key not in self.metadata:
            if default is _MISSING:
                raise self.refuse(f"its metadata has no {key!r}")
            return default
        value = self.metadata[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.refuse(f"{key} = {_shown(value)}; it must be of type {kind.__name__}")
        return cast("T", value)

    def refuse(self, what: str) -> ConfigError:
        """Return the error that says what is wrong with the file."""
        return ConfigError(f"{self.path}: {what}")


def open_gguf(path: Path) -> GgufFile:
    """Read everything except the tensors.

    Raises:
        ConfigError: if the file is not a GGUF file, is truncated (with the byte counts), is one part of several, or has
            tensors of an unknown type.
    """
    with path.open("rb") as stream:
        reader = _Reader(path, stream, path.stat().st_size)
        tensors, parameters = reader.counts()
        metadata = reader.once((reader.string(), reader.value(reader.scalar("I"))) for _ in range(parameters))
        described = reader.once((reader.string(), reader.described()) for _ in range(tensors))
        alignment, parts = metadata.get("general.alignment", ALIGNMENT), metadata.get("split.count", 1)
        for key, value in (("general.alignment", alignment), ("split.count", parts)):
            if type(value) is not int or value < 1:
                raise ConfigError(f"{path}: {key} = {_shown(value)}; it must be a positive whole number")
        start = -(-stream.tell() // alignment) * alignment
    if parts > 1:
        raise ConfigError(
            f"{path}: one of {metadata['split.count']} parts of a model; join them with `llama-gguf-split --merge`"
        )
    found = {
        name: _tensor(path, name, shape, type_, start + offset) for name, (shape, type_, offset) in described.items()
    }
    end = max((tensor.start + tensor.bytes for tensor in found.values()), default=0)
    if end > reader.size:
        raise reader.cut_short(end)
    return GgufFile(path, metadata, found)


def gguf_library() -> Any:
    """Return the `gguf` package.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(needs("GGUF files", "the gguf library", "gguf")) from error
    return gguf


def _tensor(path: Path, name: str, shape: tuple[int, ...], type_: int, start: int) -> GgufTensor:
    library = gguf_library()
    known = {kind.value: kind for kind in library.GGMLQuantizationType}
    word = known[type_].name if type_ in known else f"number {type_}"
    if word not in DENSE and word not in QUANTISED:
        raise ConfigError(f"{path}: {name} is of type {word}; supported are {listing([*DENSE, *QUANTISED], 99)}")
    if not shape or 0 in shape:
        raise ConfigError(f"{path}: {name} has the shape {list(shape)}, which holds no numbers; is the file damaged?")
    numbers, size = library.GGML_QUANT_SIZES[known[type_]]
    if shape[-1] % numbers:
        raise ConfigError(f"{path}: {name} has rows of {shape[-1]}, and type {word} comes in blocks of {numbers}")
    return GgufTensor(path, word, shape, start, math.prod(shape) // numbers * size)


@attrs.define
class _Reader:
    """Reads the parts of a header one after the other."""

    path: Path
    stream: BinaryIO
    size: int

    def counts(self) -> tuple[int, int]:
        """Check the beginning; return the numbers of tensors and of values in the metadata."""
        if self.stream.read(4) != MAGIC:
            raise ConfigError(f"{self.path}: not a GGUF file: it does not begin with {MAGIC.decode()!r}")
        version = self.scalar("I")
        if version not in VERSIONS:
            order = " (written on a big-endian machine)" if version.to_bytes(4, "little")[0] == 0 else ""
            raise ConfigError(f"{self.path}: GGUF version {version}{order}; supported are 2 and 3, little-endian")
        return self.scalar("Q"), self.scalar("Q")

    def scalar(self, form: str) -> Any:
        """Read one number."""
        return struct.unpack("<" + form, self.read(struct.calcsize("<" + form)))[0]

    def string(self) -> str:
        """Read a string. Bytes that are not UTF-8, such as half a character, are kept as they are."""
        return self.read(self.scalar("Q")).decode("utf-8", "surrogateescape")

    def once(self, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
        """Return pairs as a dict; the size of the file bounds their number, whatever it says.

        Raises:
            ConfigError: if a name comes twice.
        """
        found: dict[str, T] = {}
        for name, value in pairs:
            if name in found:
                raise ConfigError(f"{self.path}: {_shown(name)} is there twice; is the file damaged?")
            found[name] = value
        return found

    def value(self, type_: int, depth: int = 0) -> Any:
        """Read a value of the metadata; a float32 becomes the shortest number that rounds to it."""
        if type_ == _STRING:
            return self.string()
        if type_ == _ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            if inner in _SCALARS:
                data = self.read(count * struct.calcsize(f"<{_SCALARS[inner]}"))
                return list(struct.unpack(f"<{count}{_SCALARS[inner]}", data))
            if depth == DEEPEST:
                raise ConfigError(f"{self.path}: a value of its metadata is more than {DEEPEST} lists deep")
            return [self.value(inner, depth + 1) for _ in range(count)]
        if type_ not in _SCALARS:
            raise ConfigError(f"{self.path}: a value of its metadata is of the unknown type {type_}; is it damaged?")
        value = self.scalar(_SCALARS[type_])
        return float(str(np.float32(value))) if _SCALARS[type_] == "f" else value

    def described(self) -> tuple[tuple[int, ...], int, int]:
        """Read a tensor's shape, type and offset, which follow its name; shapes are stored in reverse order."""
        rank = self.scalar("I")
        shape = struct.unpack(f"<{rank}Q", self.read(8 * rank))
        return shape[::-1], self.scalar("I"), self.scalar("Q")

    def read(self, count: int) -> bytes:
        """Read `count` bytes."""
        if self.stream.tell() + count > self.size:
            raise self.cut_short(self.stream.tell() + count)
        return self.stream.read(count)

    def cut_short(self, wanted: int) -> ConfigError:
        """Return the error for a file that ends too early."""
        return ConfigError(f"{self.path}: cut short: {self.size:,} bytes of at least {wanted:,}; download it again")


def _shown(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
