"""The record of a run's tool calls, from which a step that is done again takes the same results.

A tool may give other results the next time: it asks a server, reads a clock, or does not answer in time. A run that was
killed does its last steps again, and would learn from other episodes. So every result is written to a file before any
policy reads it, and a call that is already in the file is not run. Resuming a run does not shorten the file.
"""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import DovetailWarning, RunError
from dovetail.protocols import Call
from dovetail_agent.runner import Ran

FILE: Final = "tools.jsonl"
"""In the folder of a run: a line for each call, `id`, `tool`, `arguments` and the fields of `Ran`."""

Asked = tuple[Call, Any]
"""A call, and the state of its tool in the episode."""


@attrs.define(kw_only=True)
class Record:
    """The results of calls by identity; the first result of a call is the one that counts.

    Args:
        path: the file; it is read and created at the first call.
        only: whether a call that is not in the file is an error, instead of being run.
    """

    path: Path
    only: bool = False
    _places: dict[str, int] | None = None
    """Where the line of each call begins, in bytes."""
    _lock: Any = attrs.field(factory=threading.Lock, init=False, repr=False)
    """Held while the file is read or written; calls run without it, those of several threads side by side."""

    def results(
        self, asked: Sequence[Asked], turns: Sequence[str], number: int, run: Callable[[Sequence[Asked]], list[Ran]]
    ) -> list[Ran]:
        """Return the results of calls, and run and record those that are not in the file.

        Args:
            asked: the calls, one of each turn.
            turns: the identity of each turn, which is the same when the step is done again.
            number: which call of its turn each one is.
            run: runs calls.

        Raises:
            RunError: with `only`, for a call that is not in the file; if the file is damaged or cannot be written.
        """
        ids = [identity(turn, number, *each) for turn, each in zip(turns, asked, strict=True)]
        with self._lock:
            found = [self._find(each) for each in ids]
        missing = [index for index, ran in enumerate(found) if ran is None]
        if missing and self.only:
            call, _ = asked[missing[0]]
            raise RunError(f"'{self.path}' has no result for this call of tool {call.name}: {dict(call.arguments)}")
        results = run([asked[index] for index in missing]) if missing else ()
        with self._lock:
            for index, ran in zip(missing, results, strict=True):
                found[index] = self._kept(ids[index], asked[index][0], ran)
        return [ran for ran in found if ran is not None]

    def _find(self, wanted: str) -> Ran | None:
        if self._places is None:
            self._places = self._read()
        if (place := self._places.get(wanted)) is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            line = json.loads(file.readline())
        return Ran(**{field.name: _frozen(line[field.name]) for field in attrs.fields(Ran) if field.name in line})

    def _read(self) -> dict[str, int]:
        """Return where each call is; a last line that is not whole was being written when the run was killed."""
        places: dict[str, int] = {}
        if not self.path.exists():
            return places
        place = 0
        with self.path.open("rb" if self.only else "r+b") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    if not self.only:
                        file.truncate(place)
                    break
                try:
                    places.setdefault(json.loads(line)["id"], place)
                except (ValueError, TypeError, KeyError) as error:
                    raise RunError(
                        f"'{self.path}', line {number}, is not a call of a tool: restore the file"
                    ) from error
                place += len(line)
        return places

    def _kept(self, name: str, call: Call, ran: Ran) -> Ran:
        """Write a result, and return it as it would be read; an error that ends the run is not written."""
        if ran.stop:
            return ran
        try:
            state = json.dumps(ran.state)
        except (TypeError, ValueError) as error:
            warnings.warn(
                f"the state of tool {call.name} is not made of JSON values ({error}), so its results are not recorded:"
                " a run that is killed and resumed may differ",
                DovetailWarning,
                stacklevel=2,
            )
            return ran
        about = {"id": name, "tool": call.name, "arguments": dict(call.arguments)}
        fields = attrs.asdict(ran, recurse=False, filter=lambda field, _: field.name != "slip")  # told when it happened
        line = json.dumps(about | fields, ensure_ascii=False, default=str)
        try:
            with self.path.open("ab") as file:
                place = file.tell()
                file.write(line.encode(errors="replace") + b"\n")
        except OSError as error:
            raise RunError(f"'{self.path}' cannot be written: {error.strerror or error}") from error
        assert self._places is not None, "it was looked up before"
        self._places.setdefault(name, place)
        return attrs.evolve(ran, state=_frozen(json.loads(state)))


def identity(turn: str, number: int, call: Call, state: Any) -> str:
    """Return the identity of a call: of the turn, which call of it, the tool, its arguments and its state."""
    parts = [turn, number, call.name, dict(call.arguments), state]
    try:
        text = json.dumps(parts, sort_keys=True, default=str)
    except (TypeError, ValueError):  # what a format reads need not be JSON: keys of several types cannot be sorted
        text = repr(parts)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]


def _frozen(value: Any) -> Any:
    """Return JSON values with tuples for lists: a state is a value that nobody changes."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {name: _frozen(each) for name, each in value.items()} if isinstance(value, dict) else value
