"""Files of JSON lines that a command continues after being killed: no record is written twice, and none is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs

from dovetail.errors import RunError
from dovetail.run.files import hold, json_bytes, read_record, records, write_whole

BLOCK = 1 << 20


@attrs.define
class Lines:
    """An open file of JSON lines, locked by this process; `found` yields the records of earlier runs of the command."""

    path: Path
    _file: IO[bytes]

    @property
    def found(self) -> Iterator[dict[str, Any]]:
        """Yield the records in the file; see `dovetail.run.files.records`."""
        return records(self.path)

    def append(self, added: Iterable[Mapping[str, Any]]) -> None:
        """Write records, and flush them to the operating system.

        Raises:
            RunError: if the disk is full; complete records are kept, and the same command continues after them.
        """
        data = b"".join(json_bytes(record, default=str) + b"\n" for record in added)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"'{self.path}' cannot be written: {error.strerror or error}; what is there stays"
            ) from error


@contextmanager
def open_lines(path: Path, identity: Mapping[str, Any]) -> Iterator[Lines]:
    """Open a file, either a new one or one to continue.

    Args:
        path: the file. The file `path` + `.json` beside it records its identity.
        identity: the inputs of the command, JSON values by name; a file with another identity is refused.

    Raises:
        RunError: if the file is in use, has another identity (the message shows the difference), or is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold(path, f"'{path}'") as file:
            _claim(path, json.loads(json.dumps(identity)))
            cut_torn_line(path)
            yield Lines(path, file)
    except OSError as error:
        raise RunError(f"'{path}' cannot be written: {error.strerror or error}") from error


def _claim(path: Path, identity: dict[str, Any]) -> None:
    note = path.with_name(path.name + ".json")
    if not note.exists():
        if path.stat().st_size:
            raise RunError(f"'{path}' exists and is not this command's; choose another file, or move it away")
        write_whole(note, json.dumps(identity, indent=2) + "\n")
        return
    theirs = read_record(note)
    differ = [key for key in identity if theirs.get(key) != identity[key]]
    if differ:
        shown = "; ".join(f"{key}: {theirs.get(key)!r} in it, {identity[key]!r} here" for key in differ)
        raise RunError(f"'{path}' is made of something else ({shown}); choose another file, or repeat its command")


def cut_torn_line(path: Path) -> None:
    """Cut the text after the last line break, an incomplete line left by a process that was killed."""
    with path.open("rb+") as file:
        end = keep = file.seek(0, os.SEEK_END)
        while keep:
            start = max(0, keep - BLOCK)
            file.seek(start)
            last = file.read(keep - start).rfind(b"\n")
            if last >= 0:
                keep = start + last + 1
                break
            keep = start
        if keep < end:
            file.truncate(keep)
