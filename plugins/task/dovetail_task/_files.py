"""Open a table of records: every record is read and checked once, and none is kept as a Python object."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from dovetail.data import View
from dovetail.errors import DataError, listing, nearest
from dovetail_task._chat import no_conversation
from dovetail_task._parquet import Parquet
from dovetail_task._text_files import Csv, JsonLines

Record = dict[str, Any]
DATA_SOURCE: Final = "data_source"
"""The column by which evaluations are reported apart, as in the data made for verl."""
Check = Callable[[Record], str | None]
"""Returns what is wrong with a record, or None."""


class Source(Protocol):
    """The records of one file or data set; `scan` must run to its end before they are accessed by index."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    def scan(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with its place, such as `train.jsonl:7`."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Record: ...


@attrs.frozen
class Joined:
    """The records of several files, one file after the other.

    A column that only some of the files have is None in the records of the others. `data_source` says which file a
    record is from, unless its file has such a column itself.
    """

    sources: tuple[Source, ...]
    labels: tuple[str, ...]
    """The value of `data_source` for each of the sources."""

    @property
    def name(self) -> str:
        """The names of all."""
        return ", ".join(source.name for source in self.sources)

    @cached_property
    def _missing(self) -> tuple[Record, ...]:
        """What the records of each source do not have."""
        columns = [first_columns(source) for source in self.sources]
        every = dict.fromkeys(name for of_one in columns for name in of_one)
        return tuple(
            {name: None for name in every if name not in of_one}
            | ({} if DATA_SOURCE in of_one else {DATA_SOURCE: label})
            for of_one, label in zip(columns, self.labels, strict=True)
        )

    def scan(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with its place."""
        for source, missing in zip(self.sources, self._missing, strict=True):
            for place, record in source.scan():
                yield place, _with(record, missing)

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def __getitem__(self, index: int, /) -> Record:
        for source, missing in zip(self.sources, self._missing, strict=True):
            if index < len(source):
                return _with(source[index], missing)
            index -= len(source)
        raise IndexError(index)


FORMATS: dict[str, Callable[[Path], Source]] = {
    ".csv": Csv,
    ".jsonl": JsonLines,
    ".parquet": Parquet,
}


@attrs.frozen
class Table(Sequence[Record]):
    """The checked records of a source, by index.

    `columns` are those of the first record; every other record has them too. `fingerprints` are 64-bit hashes of the
    prompts.
    """

    name: str
    columns: tuple[str, ...]
    fingerprints: array[int]
    source: Source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return View(range(len(self))[index], self.__getitem__)
        return self.source[range(len(self))[index]]


def open_table(
    source: Source, text: Mapping[str, str], check: Check = lambda _: None, *, conversations: bool = False
) -> Table:
    """Read a source once, from beginning to end.

    Args:
        source: the records.
        text: the columns that must hold text in every record, the prompt first, each with the setting that names it.
        check: a further check of each record.
        conversations: whether the prompt may be a list of messages instead.

    Raises:
        DataError: in one line with the file and the line, for a file that cannot be read or has no records, for a
            broken record, and for a missing column (with the columns found).
    """
    columns: tuple[str, ...] | None = None
    fingerprints = array("Q")
    prompt = next(iter(text))
    try:
        for place, record in source.scan():
            if columns is None:
                columns = tuple(record)
                _check_columns(source.name, columns, text)
            wrong = (
                _missing(record, columns) or _not_text(record, text, prompt if conversations else None) or check(record)
            )
            if wrong:
                raise DataError(f"{place}: {wrong}")
            fingerprints.append(_fingerprint(record[prompt]))
    except OSError as error:
        raise DataError(f"'{source.name}' cannot be read: {error.strerror or error}") from error
    if columns is None:
        raise DataError(f"{source.name} has no records")
    return Table(source.name, columns, fingerprints, source)


def first_columns(source: Source) -> tuple[str, ...]:
    """Return the columns of the first record, without reading the rest if the format allows.

    Raises:
        DataError: if the file cannot be read or has no records.
    """
    try:
        for _, record in source.scan():
            return tuple(record)
    except OSError as error:
        raise DataError(f"'{source.name}' cannot be read: {error.strerror or error}") from error
    raise DataError(f"{source.name} has no records")


def held_out(table: Table, share: float, setting: str) -> tuple[Sequence[Record], Sequence[Record]]:
    """Return the records to train on and those held out.

    Which of the two a record belongs to depends only on its prompt: copies of a question are never in both, and adding
    records moves none.

    Raises:
        DataError: if either is empty.
    """
    limit = share * 2**64
    kept, held = array("q"), array("q")
    for index, fingerprint in enumerate(table.fingerprints):
        (held if fingerprint < limit else kept).append(index)
    if not kept or not held:
        which, other = ("none", "a greater") if not held else ("all", "a smaller")
        file = setting.replace("eval_share", "eval_path")
        raise DataError(
            f"{setting} = {share} holds out {which} of the {len(table)} records of {table.name} for evaluation: set"
            f" {other} share, add records, or name a file for evaluation in {file}"
        )
    return View(kept, table.__getitem__), View(held, table.__getitem__)


def source_of(path: Path) -> Source:
    """Return the records of a .jsonl, .csv or .parquet file.

    Raises:
        DataError: for another suffix, or what cannot be a path.
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} is not a path: it holds a null character")
    if path.exists() and not path.is_file():  # to open a pipe would be to wait for who writes to it
        raise DataError(f"'{path}' is {'a folder' if path.is_dir() else 'not a file'}")
    if path.suffix not in FORMATS:
        raise DataError(f"'{path}' has an unknown suffix {path.suffix!r}; known: {listing(FORMATS)}")
    return FORMATS[path.suffix](path)


def _with(record: Record, missing: Record) -> Record:
    """Return the record, with the missing columns after its own."""
    return record | {name: value for name, value in missing.items() if name not in record}


def sources_of(paths: str | Sequence[str], setting: str) -> Source:
    """Return the records of one file or of several; see `source_of` and `Joined`.

    Raises:
        DataError: for a file that cannot be read, or that is named twice; one that is not there is named with the
            setting, its full path and a file of a similar name beside it.
    """
    files = [Path(path).expanduser() for path in ([paths] if isinstance(paths, str) else paths)]
    for file in files:
        if "\0" not in str(file) and not file.exists():
            beside = [each.name for each in file.parent.iterdir()] if file.parent.is_dir() else []
            said = f"{setting}: there is no file '{file.absolute()}'.{nearest(file.name, beside)}"
            raise DataError(said.removesuffix("."))
    if len(files) == 1:
        return source_of(files[0])
    if again := next((file for file in files if files.count(file) > 1), None):
        raise DataError(f"'{again}' is named twice")
    stems, above = [file.stem for file in files], os.path.commonpath([file.absolute() for file in files])
    # the same from whatever folder a run is resumed
    paths = [os.path.relpath(file.absolute(), above) for file in files]
    labels = [stem if stems.count(stem) == 1 else path for stem, path in zip(stems, paths, strict=True)]
    return Joined(tuple(map(source_of, files)), tuple(labels))


def _check_columns(name: str, columns: tuple[str, ...], text: Mapping[str, str]) -> None:
    for column, setting in text.items():
        if column not in columns:
            raise DataError(
                f"{name} has no column {column!r} ({setting}).{nearest(column, columns)} Columns: {listing(columns)}"
            )


def _missing(record: Record, columns: tuple[str, ...]) -> str | None:
    missing = [column for column in columns if column not in record]
    return (
        f"lacks the column {missing[0]!r}, which the first record has; write null if it has no value"
        if missing
        else None
    )


def _not_text(record: Record, text: Mapping[str, str], conversation: str | None) -> str | None:
    for column in text:
        value = record[column]
        if column == conversation and isinstance(value, list):
            wrong = no_conversation(value)
            if wrong:
                return f"column {column!r}: {wrong}"
            value = "".join(message["content"] for message in value)
        if not isinstance(value, str):
            return f"column {column!r} holds {'null' if value is None else type(value).__name__}, not text"
        if not value.strip():
            return f"column {column!r} is empty"
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"column {column!r} holds half of a surrogate pair, which no tokenizer can read"
    return None


def _fingerprint(prompt: str | list[Any]) -> int:
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
