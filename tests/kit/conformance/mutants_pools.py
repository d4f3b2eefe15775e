"""Broken pools."""

from __future__ import annotations

from typing import Any

import attrs
from tests.kit.conformance.mutants import caught_by

from dovetail_executor.pool.processes import Processes


@attrs.frozen
class _Around:
    """Workers; what is below breaks one thing."""

    inner: Any

    def map(self, calls: Any, *, time_limit: float, until: Any = lambda _: False) -> list[Any]:
        return self.inner.map(calls, time_limit=time_limit, until=until)

    def close(self) -> None:
        self.inner.close()


class _LongestFirst(_Around):
    def map(self, calls: Any, *, time_limit: float, until: Any = lambda _: False) -> list[Any]:
        order = sorted(range(len(calls)), key=lambda place: calls[place])
        found = self.inner.map([calls[place] for place in order], time_limit=time_limit, until=until)
        return [found[order[place]] for place in range(len(calls))]


class _Patient(_Around):
    def map(self, calls: Any, *, time_limit: float, until: Any = lambda _: False) -> list[Any]:
        return self.inner.map(calls, time_limit=10 * time_limit, until=until)


@caught_by("pool", "results_of_their_calls", slow=True)
@attrs.frozen(kw_only=True)
class OrdersTwice(Processes):
    def open(self, function: Any, what: str) -> Any:
        return _LongestFirst(super().open(function, what))


@caught_by("pool", "late_calls_end", slow=True)
@attrs.frozen(kw_only=True)
class WaitsTenTimes(Processes):
    def open(self, function: Any, what: str) -> Any:
        return _Patient(super().open(function, what))
