"""Read the passages of a corpus, from files or from a task that provides them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import dovetail
from dovetail.errors import DataError, listing, nearest

Passage = tuple[str, str]
"""Title and text; the title may be empty."""


def passages(corpus: str) -> Iterator[Passage]:
    """Yield the passages of a file, of a folder's files, or of a task of that name.

    Raises:
        DataError: if there is nothing of that name, or it cannot be read.
    """
    path = Path(corpus).expanduser()
    if not path.exists():
        yield from _of_task(corpus)
        return
    files = sorted(file for file in path.rglob("*") if file.suffix in (".jsonl", ".txt")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"the corpus '{corpus}' is a folder without .jsonl and .txt files")
    for file in files:
        yield from _of_file(file)


def _of_file(file: Path) -> Iterator[Passage]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _record(file, number, line) if file.suffix == ".jsonl" else ("", line.strip())
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{file}: the corpus cannot be read: {error}") from error


def _record(file: Path, number: int, line: str) -> Passage:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}:{number}: the line is not valid JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        has = f"the keys {', '.join(record)}" if isinstance(record, dict) else f"type {type(record).__name__}"
        raise DataError(f'{file}:{number}: a passage is {{"text": "...", "title": "..."}}; this record has {has}')
    return str(record.get("title", "")), record["text"]


def _of_task(name: str) -> Iterator[Passage]:
    passages = _passages_of(name) if name in dovetail.names("task") else None
    if passages is None:
        having = [other for other in dovetail.names("task") if _passages_of(other)]
        raise DataError(
            f"the corpus '{name}' is neither a file nor a folder, nor a task with passages.{nearest(name, having)}"
            f" Tasks with passages: {listing(having)}"
        )
    yield from passages()


def _passages_of(task: str) -> Callable[[], Iterator[Passage]] | None:
    return getattr(dovetail.get("task", task).load(), "passages", None)
