"""Many calls at a time to something that takes only so many: a server, or a model behind an API."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

import attrs


@attrs.define
class Rate:
    """Spaces calls evenly, whichever threads they come from: `wait` returns `per_second` times a second at most.

    >>> moments = []
    >>> rate = Rate(per_second=4.0, clock=lambda: 0.0, sleep=moments.append)
    >>> for _ in range(3): rate.wait()
    >>> moments
    [0.25, 0.5]
    """

    per_second: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_at: float = attrs.field(default=float("-inf"), init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def reserve(self) -> float:
        """Take the next turn; return in how many seconds it comes."""
        with self._lock:
            now = self.clock()
            turn = max(now, self._free_at)
            self._free_at = turn + 1 / self.per_second
        return turn - now

    def wait(self) -> None:
        """Take the next turn, and return when it comes."""
        delay = self.reserve()
        if delay > 0:
            self.sleep(delay)


@functools.cache
def shared_rate(of: str, per_second: float) -> Rate:
    """Return the rate at which this program calls something, the same one for all that do."""
    return Rate(per_second)
