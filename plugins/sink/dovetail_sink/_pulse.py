"""What a run is doing, as lines of text: enough of them that no log is silent for minutes, and no more."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

FIRST_SECONDS: Final = 5.0
"""Silence before a line, once there are records; twice as long after each further line of the same phase."""
LONGEST_SECONDS: Final = 60.0
TICK_SECONDS: Final = 1.0


@attrs.define(eq=False)
class Pulse:
    """Prints `[elapsed] what (how long)` where nothing else has been printed for a while.

    In the first step each new phase is a line at once: nothing is known yet of how long things take.
    """

    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
    now: Callable[[], float] = time.monotonic
    began: float = attrs.field(init=False)
    _doing: Any = None
    _since: float = 0.0
    _said_at: float = 0.0
    _silence: float = FIRST_SECONDS
    _settled: bool = False
    _lock: Any = attrs.field(factory=threading.Lock, repr=False)
    _closed: threading.Event = attrs.field(factory=threading.Event, repr=False)

    def __attrs_post_init__(self) -> None:
        self.began = self._said_at = self.now()

    def start(self) -> Pulse:
        """Look at the clock from now on, in a thread of its own."""
        threading.Thread(target=self._watch, name="progress", daemon=True).start()
        return self

    def tell(self, doing: Any) -> None:
        """Take what the run is doing."""
        with self._lock:
            before, self._doing = self._doing, doing
            is_new = before is None or before.what != doing.what
            if before is not None and not is_new and before.compiling == doing.compiling:
                return
            self._since, self._silence = self.now(), FIRST_SECONDS
            if (is_new or doing.compiling) and not self._settled:
                self._line()

    def recorded(self, *, of_step: bool = True) -> None:
        """Take note that a record has been printed, of a step or of an evaluation."""
        with self._lock:
            self._settled = self._settled or of_step
            self._said_at, self._silence = self.now(), FIRST_SECONDS

    def tick(self) -> None:
        """Print a line if it is time for one."""
        with self._lock:
            if self._doing is not None and self.now() - self._said_at >= self._silence:
                self._line()
                self._silence = min(2 * self._silence, LONGEST_SECONDS)

    def close(self) -> None:
        """Print nothing from now on."""
        self._closed.set()

    def _line(self) -> None:
        now = self.now()
        spent = now - self._since
        took = f" ({spent:.0f} s)" if spent >= 1 else ""
        self.say(f"[{now - self.began:.0f} s] {self._doing}{took}")
        self._said_at = now

    def _watch(self) -> None:
        while not self._closed.wait(TICK_SECONDS):
            self.tick()
