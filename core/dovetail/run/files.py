"""Locking, writing and reading the files of runs; all code that stores or shows runs uses these functions.

A lock is released when its process ends, however it ends; files are written atomically; and a file of JSON lines can be
read while it grows.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from dovetail.errors import RunError

POLL_SECONDS = 0.02
LARGEST: Final = 1 << 28
"""The greatest number of bytes of a file that is read as a whole, and of a line; a sparse file of a stranger's costs
him nothing."""


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


def make_folder(path: Path) -> None:
    """Create a folder for results, before the work whose results it will hold.

    Raises:
        RunError: if it is not a folder, or cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise RunError(f"folder '{path}' cannot be written: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def writing(path: Path, kept: str = "") -> Iterator[None]:
    """Report what keeps a file or folder from being written in one line with its name, which a full disk does not say.

    Args:
        path: what is written in this context.
        kept: what is not lost, for the message.

    Raises:
        RunError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunError(f"'{path}' cannot be written: {error.strerror or error}{kept and f'; {kept}'}") from error


def json_bytes(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    r"""Return JSON in UTF-8; half of a surrogate pair, which UTF-8 does not have, becomes JSON's escape for it.

    Args:
        value: what is written.
        default: as of `json.dumps`.

    >>> json_bytes({"completion": "é\ud800"}).decode()
    '{"completion": "é\\ud800"}'
    """
    return json.dumps(value, ensure_ascii=False, default=default).encode(errors="backslashreplace")


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically: readers see the old text or the new one, even if the process is killed.

    A link is replaced, never followed: in a folder from a stranger it may lead anywhere. Half of a surrogate pair is
    escaped, as in JSON and in Python.

    Raises:
        OSError: if it cannot be written, with its name, also where the disk is full; the old text is still there then.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        aside.unlink(missing_ok=True)  # a process with the same id may have left it
        with aside.open("x", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        error.filename = error.filename or str(path)
        raise


def read_text(path: Path) -> str:
    """Return a text file of a folder that may be a stranger's.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a file (reading from a pipe may never end), is too large, or is not UTF-8.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: {error}") from error


def read_json(path: Path) -> Any:
    """Return the JSON in a file of a folder that may be a stranger's.

    Raises:
        OSError: if it cannot be read.
        ValueError: as `read_text`, or if it is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error


def read_record(path: Path, **wanted: type) -> dict[str, Any]:
    """Return the JSON object in a file, which must have the keys `wanted` with values of these types.

    Raises:
        RunError: if the file cannot be read or has other content; the message says what was expected.
    """
    try:
        found = read_json(path)
    except OSError as error:
        raise RunError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"'{path}' cannot be read: {error}; restore it, or choose another folder") from error
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
        for number in itertools.count(1):
            line = file.readline(LARGEST)
            if len(line) == LARGEST:
                raise RunError(f"{path}:{number}: more than {LARGEST:,} bytes in a line; move the file away")
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
