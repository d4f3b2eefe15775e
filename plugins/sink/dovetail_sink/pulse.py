"""Prints what a run is doing as lines of text, just often enough that a log is never silent for minutes."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

import attrs

FIRST_SECONDS: Final = 5.0
"""Silence before a line, once there are records; twice as long after each further line of the same phase."""
LONGEST_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 30.0
"""Silence before the one line between two records of a quiet pulse."""
TICK_SECONDS: Final = 1.0


def in_notebook() -> bool:
    """Tell whether output goes into a notebook, which has no cursor, and shows stderr as errors."""
    from rich.console import Console

    return Console().is_jupyter


def told() -> TextIO:
    """Return the stream for what a person may want to know, which is no result."""
    return sys.stdout if in_notebook() else sys.stderr


@attrs.define(eq=False)
class Pulse:
    """Prints `[elapsed] activity (duration)` for each program if nothing else has been printed for a while.

    Until it is `settled`, at the end of the first step, a line is printed for each new phase at once, because its
    duration is not known yet. A `quiet` one prints at most one line between two records.
    """

    say: Callable[[str], None] = lambda line: print(line, file=told(), flush=True)
    now: Callable[[], float] = time.monotonic
    settled: bool = False
    quiet: bool = False
    began: float = attrs.field(init=False)
    _doing: dict[str, tuple[Any, float]] = attrs.field(factory=dict)
    _said_at: float = 0.0
    _silence: float = FIRST_SECONDS
    _lock: Any = attrs.field(factory=threading.Lock, repr=False)
    _closed: threading.Event = attrs.field(factory=threading.Event, repr=False)

    def __attrs_post_init__(self) -> None:
        self.began = self._said_at = self.now()
        self._silence = self._first
        self.settled = self.settled or self.quiet

    @property
    def _first(self) -> float:
        return QUIET_SECONDS if self.quiet else FIRST_SECONDS

    def start(self) -> Pulse:
        """Look at the clock from now on, in a thread of its own."""
        threading.Thread(target=self._watch, name="progress", daemon=True).start()
        return self

    def tell(self, doing: Any) -> None:
        """Take what the run is doing."""
        with self._lock:
            before, since = self._doing.get(doing.program, (None, 0.0))
            is_new = before is None or before.what != doing.what
            if before is not None and not is_new and before.compiling == doing.compiling:
                self._doing[doing.program] = doing, since
                return
            self._doing[doing.program] = doing, self.now()
            if not self.quiet:
                self._silence = FIRST_SECONDS
            if (is_new or doing.compiling) and not self.settled:
                self._line(doing.program)

    def recorded(self, *, of_step: bool = True) -> None:
        """Take note that a record has been printed, of a step or of an evaluation."""
        with self._lock:
            self.settled = self.settled or of_step
            self._said_at, self._silence = self.now(), self._first

    def tick(self) -> None:
        """Print a line if it is time for one."""
        with self._lock:
            if self._doing and self.now() - self._said_at >= self._silence:
                self._line(*self._doing)
                self._silence = math.inf if self.quiet else min(2 * self._silence, LONGEST_SECONDS)

    def close(self) -> None:
        """Print nothing from now on."""
        self._closed.set()

    def _line(self, *programs: str) -> None:
        now, said = self.now(), []
        for doing, since in (self._doing[program] for program in programs):
            said.append(f"{doing} ({now - since:.0f} s)" if now - since >= 1 else str(doing))
        self.say(f"[{now - self.began:.0f} s] {'; '.join(said)}")
        self._said_at = now

    def _watch(self) -> None:
        while not self._closed.wait(TICK_SECONDS):
            self.tick()
