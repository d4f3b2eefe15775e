"""`journal.jsonl`: what happened to an A/B test, line by line, each with a hash of itself and of all before it.

Changing a line breaks the chain unless all later hashes are computed again. The only protection against that is to keep
the hash of the first line, the seal, where its owner cannot change it, such as in a pull request with `ab.md`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from dovetail.errors import RunError
from dovetail.run.files import json_bytes, read_lines
from dovetail_lab.evaluation.lines import cut_torn_line
from dovetail_lab.recorded import value_of

FILE: Final = "journal.jsonl"
_REGISTERED: Final = {"registration": dict[str, Any]}
TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "registered": _REGISTERED,
    "amended": _REGISTERED,
    "finished": {"run": str, "status": str, "started": float | None, "result": str},
    "looked": {"look": int, "verdicts": dict[str, str]},
    "sources": {"time": str, "hashes": dict[str, str]},
}
"""What is read of each event."""
Event = Literal["registered", "amended", "finished", "looked", "sources"]


@attrs.frozen
class Journal:
    """The journal in a test's folder.

    Its events:

    * `registered`, `amended`: `registration` as it stood from then on.
    * `finished`: the `run`, its `status`, when it had `started`, and the hash of its `result`.
    * `looked`: the `look`, and the `verdicts` by arm.
    * `sources`: the `hashes` of packages that differ from those of the registration.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / FILE

    def entries(self) -> list[dict[str, Any]]:
        """Return the lines, oldest first; none if there is no journal.

        Raises:
            RunError: if a line cannot be read.
        """
        found = read_lines(self.path)
        for number, entry in enumerate(found, 1):
            for name, hint in TYPES.get(str(entry.get("event")), {}).items():
                try:
                    value_of(hint, entry[name], name)
                except KeyError:
                    raise RunError(f"{self.path}:{number}: it has no {name!r}; restore the file") from None
                except ValueError as error:
                    raise RunError(f"{self.path}:{number}: {error}; restore the file") from None
        return found

    def of(self, event: Event) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the content of the lines of one event."""
        return ((number, entry) for number, entry in enumerate(self.entries()) if entry.get("event") == event)

    def append(self, event: Event, about: Mapping[str, Any]) -> None:
        """Write a line.

        Raises:
            RunError: if that is impossible.
        """
        entries = self.entries()
        entry = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "event": event, **about}
        entry["hash"] = _hash(entries[-1]["hash"] if entries else "", entry)
        try:
            if self.path.exists():
                cut_torn_line(self.path)  # or this line would be the end of that
            with self.path.open("ab") as file:
                file.write(json_bytes(entry) + b"\n")
        except OSError as error:
            raise RunError(f"'{self.path}' cannot be written: {error.strerror or error}") from error

    @property
    def seal(self) -> str:
        """The first line's hash, in short; empty without a journal."""
        entries = self.entries()
        return str(entries[0].get("hash", ""))[:12] if entries else ""

    def broken_at(self) -> int | None:
        """Return the number of the first line that does not fit the hash it carries, counted from 1; None: all do."""
        previous = ""
        for number, entry in enumerate(self.entries(), 1):
            content = {key: value for key, value in entry.items() if key != "hash"}
            if entry.get("hash") != _hash(previous, content):
                return number
            previous = entry["hash"]
        return None


def digest(run: Path) -> str:
    """Return a hash of what a run has recorded: its metrics, and its prompts."""
    found = hashlib.sha256()
    for name in ("metrics.jsonl", "eval.jsonl"):
        file = run / name
        found.update(hashlib.sha256(file.read_bytes() if file.is_file() else b"").digest())
    return found.hexdigest()


def _hash(previous: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256((previous + json.dumps(entry, sort_keys=True)).encode()).hexdigest()
