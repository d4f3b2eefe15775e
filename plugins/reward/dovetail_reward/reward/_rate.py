"""Limit the rate of concurrent calls to a server or an API."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

import attrs


@attrs.define
class Rate:
    """Spaces calls evenly across threads: `wait` returns at most `per_second` times per second.

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
        """Reserve the next slot; return the seconds until it begins."""
        with self._lock:
            now = self.clock()
            turn = max(now, self._free_at)
            self._free_at = turn + 1 / self.per_second
        return turn - now

    def wait(self) -> None:
        """Reserve the next slot, and return when it begins."""
        delay = self.reserve()
        if delay > 0:
            self.sleep(delay)


@functools.cache
def shared_rate(of: str, per_second: float) -> Rate:
    """Return the rate limit for a resource, the same object for all callers in this process."""
    return Rate(per_second)
