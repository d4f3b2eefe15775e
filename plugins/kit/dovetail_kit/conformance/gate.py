"""A gate for threads: it has them meet where they could disturb one another, and notes where two are at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

WAIT: Final = 0.02
"""Seconds for which a thread waits for another one to come."""
VAIN: Final = 10
"""So often nobody comes; then nobody is waited for any more, as a lock keeps the threads apart."""
DEADLINE: Final = 60.0
"""Seconds within which threads come back, unless one of them waits for ever."""


@attrs.define(eq=False)
class Gate:
    """What threads pass on their way into something, each of which waits for another one to come.

    So threads that can disturb one another do, and not once in a thousand runs.

    Attributes:
        crowded: where two threads were at a time.
    """

    crowded: set[str] = attrs.field(factory=set)
    _inside: Counter[str] = attrs.field(factory=Counter)
    _come: int = 0
    _vain: int = 0
    _changed: threading.Condition = attrs.field(factory=threading.Condition)

    @contextlib.contextmanager
    def passed(self, where: str) -> Iterator[None]:
        """Be at a place."""
        with self._changed:
            if self._inside[where]:
                self.crowded.add(where)
            self._inside[where] += 1
            self._come += 1
            self._changed.notify_all()
            came = self._come
            if self._vain < VAIN and not self._changed.wait_for(lambda: self._come > came, WAIT):
                self._vain += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[where] -= 1


_GATES: Final[list[Gate]] = []


@contextlib.contextmanager
def opened() -> Iterator[Gate]:
    """Put up a gate in this process."""
    gate = Gate()
    _GATES.append(gate)
    try:
        yield gate
    finally:
        _GATES.remove(gate)


def passing(where: str) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a thread is at a place, if a gate is up."""
    return _GATES[-1].passed(where) if _GATES else contextlib.nullcontext()


def side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any] | None:
    """Return what calls return, each in a thread of its own, or the exceptions that they raise; None if one hangs.

    The threads begin together, and end with the process, so that one that hangs keeps nothing up.
    """
    found: list[Any] = [None] * len(calls)
    together = threading.Barrier(len(calls))

    def run(place: int) -> None:
        try:
            together.wait(DEADLINE)
            found[place] = calls[place]()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + DEADLINE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return None if any(thread.is_alive() for thread in threads) else found
