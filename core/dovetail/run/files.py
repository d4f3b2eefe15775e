"""How files of runs are locked, written and read; everything that keeps or shows runs does it with these.

A lock ends with the process that holds it, however that ends; a file is written whole or not at all; a file of JSON
lines can be read while it grows.
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
    """Open a file to append to, and hold its lock until it is closed.

    The lock is flock's and no record of a process id, which would outlive a process that is killed.

    Args:
        path: the file; it is made where there is none.
        what: what is held by it, for the message.
        patience: how many seconds to wait, as who only asks whether it is held holds it for a moment.

    Raises:
        RunError: if another process has it.
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
    """Tell whether a process holds a file's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old text or the new one, also when the process is killed."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def read_record(path: Path, **wanted: type) -> dict[str, Any]:
    """Return the JSON object in a file, which must have these keys with values of these types.

    Raises:
        RunError: if it cannot be read or is something else, with what was expected.
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
    """Yield the records of a file of JSON lines, one at a time; an absent file has none.

    What stands behind the last line break is being written, or is what a kill left of a record, and is passed over.

    Raises:
        RunError: at a line that is not a record, with its number.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        # lines of bytes: str.splitlines would also break them at U+2028 and its like, which JSON need not escape
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
    """Return the records of a file of JSON lines, all or those of one phase of a run, `sft` or `rl`; see `records`."""
    return [record for record in records(path) if phase is None or record.get("phase") == phase]
