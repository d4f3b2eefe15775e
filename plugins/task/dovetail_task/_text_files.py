"""Records of jsonl and csv files, which stay on disk: one pass notes their places and checks that they parse."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from dovetail.errors import DataError

Record = dict[str, Any]

LONGEST = 1 << 28
"""Bytes of a line."""
csv.field_size_limit(max(LONGEST, csv.field_size_limit()))  # it has 131,072, which the tests of a program exceed
GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file."""


@attrs.define
class TextFile(Sequence[Record]):
    """A file whose records are byte ranges. `scan` must run to its end before records are accessed by index."""

    path: Path
    _starts: array[int] = attrs.field(factory=lambda: array("q"), init=False)
    _ends: array[int] = attrs.field(factory=lambda: array("q"), init=False)
    _stamp: tuple[int, int] = attrs.field(default=(0, 0), init=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def scan(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with its place (`file:line`), in order, and index it.

        Raises:
            DataError: at the first line that does not parse.
        """
        with self.path.open("rb") as file:
            self._stamp = _stamp(file)
            for line, start, end, record in self._records(file):
                yield f"{self.path}:{line}", record
                self._starts.append(start)
                self._ends.append(end)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        start, end = self._starts[index], self._ends[index]
        try:
            with self.path.open("rb") as file:
                if _stamp(file) != self._stamp:
                    raise DataError(f"{self.path} has changed since it was opened; start the command again")
                file.seek(start)
                raw = file.read(end - start)
        except OSError as error:
            raise DataError(f"'{self.path}' can no longer be read: {error.strerror or error}") from error
        return self._parse(raw, str(self.path))

    @abstractmethod
    def _records(self, file: BinaryIO) -> Iterator[tuple[int, int, int, Record]]:
        """Yield the line number, the first byte, the byte after the last, and the record."""

    @abstractmethod
    def _parse(self, raw: bytes, place: str) -> Record:
        """Return the record in these bytes."""


@attrs.define
class JsonLines(TextFile):
    """One JSON object per line; blank lines are skipped."""

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, int, int, Record]]:
        end = 0
        for line, raw in enumerate(_lines(file, self.path), 1):
            start, end = end, end + len(raw)
            if raw.strip():
                yield line, start, end, self._parse(raw, f"{self.path}:{line}")

    def _parse(self, raw: bytes, place: str) -> Record:
        text = _decode(raw, place)
        try:
            record = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
        except json.JSONDecodeError as error:
            raise DataError(f"{place}: not valid JSON: {error.msg} at column {error.colno}") from error
        except (ValueError, RecursionError) as error:  # NaN, a number with thousands of digits, thousands of brackets
            raise DataError(f"{place}: not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise DataError(
                f'{place}: holds a JSON {type(record).__name__}; write one object per line, such as {{"prompt": "..."}}'
            )
        return record


def _no_number(name: str) -> float:
    """Refuse what Python's reader takes and JSON does not have: as a field it would make the loss no number."""
    raise ValueError(f"{name} is not a JSON number; write null if there is no value")


def _finite(digits: str) -> float:
    """Read a number, which may be too large to be one."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is beyond the largest number that fits")
    return value


def _object(pairs: list[tuple[str, Any]]) -> Record:
    """Make an object, and refuse a repeated key, whose first value would silently be lost."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return made


@attrs.define
class Csv(TextFile):
    """A header line, then records with as many fields. Quoted fields may span lines; every value is text."""

    _header: list[str] = attrs.field(factory=list, init=False)

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, int, int, Record]]:
        lines = _CountedLines(_lines(file, self.path), self.path)
        rows = self._rows(lines)
        self._header = next(rows, [])
        self._check_header()
        while True:
            start, line = lines.bytes_read, lines.lines_read + 1
            fields = next(rows, None)
            if fields is None:
                return
            if fields:
                yield line, start, lines.bytes_read, self._record(fields, f"{self.path}:{line}")

    def _parse(self, raw: bytes, place: str) -> Record:
        text = io.StringIO(_decode(raw, place), newline="")
        return self._record(next(csv.reader(text, strict=True)), place)

    def _rows(self, lines: _CountedLines) -> Iterator[list[str]]:
        reader = csv.reader(lines, strict=True)
        while True:
            began = lines.lines_read + 1
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"{self.path}:{began}: invalid CSV in the record that begins here: {error}") from error

    def _record(self, fields: list[str], place: str) -> Record:
        if len(fields) != len(self._header):
            raise DataError(f"{place}: {len(fields)} fields, but the header names {len(self._header)}")
        return dict(zip(self._header, fields, strict=True))

    def _check_header(self) -> None:
        repeated = sorted({name for name in self._header if self._header.count(name) > 1})
        if repeated:
            raise DataError(f"{self.path}:1: the header names the column {repeated[0]!r} twice")


@attrs.define
class _CountedLines:
    """The decoded lines of a file, with a count of the lines and bytes read."""

    file: Iterator[bytes]
    path: Path
    lines_read: int = 0
    bytes_read: int = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = next(self.file)
        self.lines_read += 1
        self.bytes_read += len(raw)
        return _decode(raw, f"{self.path}:{self.lines_read}")


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, none of which may be longer than memory.

    Raises:
        DataError: at a line of more than `LONGEST` bytes.
    """
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise DataError(f"{path}:{number}: a line of more than {LONGEST:,} bytes; is it a text file?")
        yield line


def _decode(raw: bytes, place: str) -> str:
    if raw.startswith(GZIP):
        raise DataError(f"{place}: the file is compressed with gzip; unpack it first")
    try:
        return raw.decode("utf-8-sig")  # spreadsheets put a byte-order mark in front
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not valid UTF-8: {error.reason} at byte {error.start + 1}") from error


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns
