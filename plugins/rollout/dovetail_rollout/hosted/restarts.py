"""How often a host may be restarted."""

from __future__ import annotations

import time
from typing import Final

import attrs

WINDOW_SECONDS: Final = 3600.0


@attrs.define
class Restarts:
    """So many restarts within any hour.

    A run of weeks meets more faults than one of minutes, and goes on after each; a host that fails again and again is
    given up soon.

    >>> restarts = Restarts(1)
    >>> restarts.take(now=0.0), restarts.take(now=3599.0), restarts.take(now=3601.0)
    (True, False, True)
    """

    most: int
    taken: list[float] = attrs.field(factory=list)

    def take(self, now: float | None = None) -> bool:
        """Return whether there may be another restart now, and count it."""
        now = time.monotonic() if now is None else now
        self.taken = [then for then in self.taken if now - then < WINDOW_SECONDS]
        if len(self.taken) >= self.most:
            return False
        self.taken.append(now)
        return True
