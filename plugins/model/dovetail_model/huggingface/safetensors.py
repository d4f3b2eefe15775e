"""Reads and writes safetensors files and folders, one tensor at a time; opening a file reads only its header.

A file consists of eight bytes with the length of the header, the header (a JSON object with the type, shape and offsets
of each tensor) and the tensors' bytes. A folder has one file, or several and an index that says which tensor is where.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import ml_dtypes
import numpy as np
from jaxtyping import UInt8

from dovetail.errors import ConfigError, listing

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
DTYPES: Final = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_MAX_HEADER = 100_000_000
_MAX_RANK = 32


class Readable(Protocol):
    """A tensor that is read or computed only when it is needed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type, one of `DTYPES`."""
        ...

    def read(self) -> np.ndarray:
        """Return the array."""
        ...


@attrs.frozen
class Tensor:
    """A tensor in a file, not yet read."""

    file: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    def read(self) -> np.ndarray:
        """Return a new array with the tensor's values."""
        data = read_bytes(self.file, self.start, _bytes(self))
        return data.view(self.dtype).reshape(self.shape)


def read_bytes(file: Path, start: int, count: int) -> UInt8[np.ndarray, "byte"]:
    """Return a part of a file whose header has been checked.

    Raises:
        ConfigError: if the file has become shorter since, because a download or a copy replaces it.
    """
    # A memory map would count twice if a copy is needed anyway, for example on the way to a device.
    data = np.fromfile(file, np.uint8, count=count, offset=start)
    if len(data) < count:
        raise ConfigError(f"{file}: has become shorter while it was read; is it still being written?")
    return data


def open_folder(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a model's folder by name.

    Raises:
        ConfigError: if there are no tensors, a file that the index names is missing, or a file is truncated or not a
            safetensors file.
    """
    index = folder / INDEX
    if not index.is_file():
        if not (folder / SINGLE).is_file():
            other = sorted(file.name for file in folder.glob("*.bin"))
            hint = f"; save {listing(other)} again as safetensors" if other else ""
            raise ConfigError(f"{folder}: has neither {SINGLE} nor {INDEX}{hint}")
        return open_file(folder / SINGLE)
    where = weight_map(index)
    missing = sorted({name for name in where.values() if not (folder / name).is_file()})
    if missing:
        raise ConfigError(f"{index}: names {listing(missing)}, which are missing; is the download complete?")
    tensors = {
        name: tensor for file in sorted(set(where.values())) for name, tensor in open_file(folder / file).items()
    }
    lost = where.keys() - tensors.keys()
    if lost:
        raise ConfigError(f"{index}: names tensors that are in no file: {listing(lost)}")
    return tensors


def weight_map(index: Path) -> dict[str, str]:
    """Return the name of the file that holds each tensor, as an index says.

    Raises:
        ConfigError: if it does not say so, or names a file that may lie outside its folder.
    """
    try:
        found = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{index}: has no readable 'weight_map': {error!r}") from error
    for tensor, file in found.items():
        if not isinstance(file, str) or Path(file).name != file or "\0" in file:
            raise ConfigError(f"{index}: weight_map: {tensor} is in {file!r}, which may lie outside its folder")
    return found


def open_file(file: Path) -> dict[str, Tensor]:
    """Return the tensors of one file by name.

    Raises:
        ConfigError: if the file is truncated (with the byte counts), or is not a safetensors file.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size >= 8 and length > _MAX_HEADER:
            raise ConfigError(f"{file}: not a safetensors file: its header would be {length:,} bytes")
        if 8 + length > size:
            raise ConfigError(f"{file}: cut short: {size:,} bytes, and its header alone ends at {8 + length:,}")
        try:
            header = json.loads(stream.read(length), object_pairs_hook=_object)
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            tensors = {name: _tensor(file, 8 + length, name, entry) for name, entry in entries.items()}
            end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{file}: not a safetensors file: its header cannot be read: {error!r}") from error
    if end > size:
        raise ConfigError(f"{file}: cut short: {size:,} bytes of {end:,}; copy or download it again")
    _check_apart(file, tensors)
    return tensors


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return made


def _check_apart(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that share bytes, because no program writes such files."""
    placed = sorted((tensor.start, tensor.start + _bytes(tensor), name) for name, tensor in tensors.items())
    for (_, end, first), (start, after, second) in itertools.pairwise(placed):
        if start < end and start < after:
            raise ConfigError(f"{file}: not a safetensors file: {first} and {second} overlap")


def _tensor(file: Path, start: int, name: str, entry: Mapping[str, Any]) -> Tensor:
    if entry["dtype"] not in DTYPES:
        raise ConfigError(f"{file}: {name} is of type {entry['dtype']}; supported are {listing(DTYPES)}")
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)) or len(shape) > _MAX_RANK:
        raise ValueError(f"{name} has the shape {shape!r} at the bytes {begin!r} to {end!r}")
    tensor = Tensor(file, DTYPES[entry["dtype"]], shape, start + begin)
    if end - begin != _bytes(tensor):
        raise ConfigError(f"{file}: {name} has {end - begin:,} bytes; its shape and type make {_bytes(tensor):,}")
    return tensor


def _bytes(tensor: Readable) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize


def write_file(file: Path, tensors: Mapping[str, Readable]) -> None:
    """Write one file, completely or not at all, with one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + _bytes(tensor)
        header[name] = {"dtype": _WORDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    aside = file.with_name(file.name + ".tmp")
    try:
        with aside.open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                stream.write(np.ascontiguousarray(tensor.read()).reshape(-1).view(np.uint8).data)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)  # gigabytes on a disk that may be full


def write_folder(folder: Path, tensors: Mapping[str, Readable], *, shard_bytes: int) -> list[Path]:
    """Write tensors in this order to a folder: in one file, or in several of at most `shard_bytes` with an index.

    A tensor larger than that gets a file of its own. Weights already in the folder are replaced.
    """
    shards: list[dict[str, Readable]] = [{}]
    room = shard_bytes
    for name, tensor in tensors.items():
        if _bytes(tensor) > room and shards[-1]:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = tensor
        room -= _bytes(tensor)
    count = len(shards)
    files = [SINGLE] if count == 1 else [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
    for file, shard in zip(files, shards, strict=True):
        write_file(folder / file, shard)
    if count > 1:
        where = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
        index = {"metadata": {"total_size": sum(map(_bytes, tensors.values()))}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for stale in {*folder.glob("model*.safetensors"), folder / INDEX} - {folder / file for file in files}:
        if count == 1 or stale.name != INDEX:
            stale.unlink(missing_ok=True)
    return [folder / file for file in files]
