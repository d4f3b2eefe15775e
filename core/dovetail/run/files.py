"""Locking, writing and reading the files of runs; all code that stores or shows runs uses these functions.

A lock is released when its process ends, however it ends; files are written atomically; and a file of JSON lines can be
read while it grows.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dovetail.errors import RunError

POLL_SECONDS = 0.02


def hold(path: Path, what: str, *, patience: float = 0.0) -> IO[bytes]:
    """Open a file for appending, and hold its lock until it is closed.

    The lock is that of flock. A file with a process id would remain after a process is killed.

    Args:
        path: the file, which is created if necessary.
        what: the name in messages of the thing that the lock protects.
        patience: seconds to wait, because a process that only checks the lock holds it for a moment.

    Raises:
        RunError: if another process holds the lock.
    """
    deadline = time.monotonic() + patience
    file = path.open("ab")
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                file.close()
                raise RunError(f"{what} is in use by another process") from error
            time.sleep(POLL_SECONDS)
        except OSError:
            file.close()
            raise
        else:
            return file


def is_held(path: Path) -> bool:
    """Return whether a process holds a file's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def make_folder(path: Path) -> None:
    """Create a folder for results, before the work whose results it will hold.

    Raises:
        RunError: if it is not a folder, or cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise RunError(f"folder '{path}' cannot be written: {getattr(error, 'strerror', None) or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically: readers see the old text or the new one, even if the process is killed."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def read_record(path: Path, **wanted: type) -> dict[str, Any]:
    """Return the JSON object in a file, which must have the keys `wanted` with values of these types.

    Raises:
        RunError: if the file cannot be read or has other content; the message says what was expected.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"'{path}' cannot be read: not valid JSON: {error}; restore it, or choose another folder"
        ) from error
    for key, kind in wanted.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            raise RunError(f"'{path}' has no {key!r}, or not as {kind.__name__}; restore it, or choose another folder")
    if not isinstance(found, dict):
        raise RunError(f"'{path}' does not hold an object; restore it, or choose another folder")
    return found


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines, one at a time; a missing file has no records.

    Text after the last line break is skipped: it is still being written, or is a record cut off by a kill.

    Raises:
        RunError: at a line that is not a record, with the number of the line.
    """
    if path.exists() and not path.is_file():  # to open a pipe would be to wait for who writes to it
        raise RunError(f"'{path}' is not a file; move it away")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        # lines of bytes, because str.splitlines also splits at U+2028 and the like, which JSON need not escape
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RunError(f"{path}:{number}: not valid JSON ({error}); mend it, or move the file away") from error
            if not isinstance(record, dict):
                raise RunError(f"{path}:{number}: not a record but {record!r}; mend it, or move the file away")
            yield record


def read_lines(path: Path, phase: str | None = None) -> list[dict[str, Any]]:
    """Return all records of a file of JSON lines, or those of one phase of a run, `sft` or `rl`; see `records`."""
    return [record for record in records(path) if phase is None or record.get("phase") == phase]
