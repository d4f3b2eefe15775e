"""When each of several programs was at work, such as the replicas of a fleet, for the time line of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from dovetail.spans import Span, note, now

Interval = tuple[float, float]


@attrs.frozen
class Busy:
    """The times of a batch's calls, by program; the threads that wait for the answers add to it."""

    calls: list[tuple[str, float, float]] = attrs.field(factory=list)

    @contextlib.contextmanager
    def call(self, program: str) -> Iterator[None]:
        """Measure a call of a program, also one that fails."""
        began = now()
        try:
            yield
        finally:
            self.calls.append((program, began, now()))

    def note(self, name: str) -> None:
        """Record the spans, one for all calls of a program that overlap; the caller's thread is that of the run."""
        for program in sorted({each for each, *_ in self.calls}):
            for began, ended in union((b, e) for each, b, e in self.calls if each == program):
                note(Span(program, None, name, began, ended))


def union(intervals: Iterator[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same times.

    >>> union(iter([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)]))
    [(0.0, 2.0), (3.0, 4.0)]
    """
    found: list[Interval] = []
    for began, ended in sorted(intervals):
        if found and began <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((began, ended))
    return found
