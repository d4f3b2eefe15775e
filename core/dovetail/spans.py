"""What ran when: spans of a run's programs, which become `spans.jsonl` in its folder. They never affect its results."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

TRAINER: Final = "trainer"

_EPOCH: Final = time.time() - time.perf_counter()
"""Read once, so that a span is not negative where the system's clock is set, and processes can still be compared."""


class Span(NamedTuple):
    """An activity of a program of the run; its times are in seconds since 1970.

    Attributes:
        program: the program that it belongs to: 'trainer', 'sampler', or the name that a plugin gives to its own.
        step: the step of reinforcement learning, from 1, that it belongs to, if any; in the sampler's program, the step
            that learns from the batch.
        name: what was done.
        began: when it began.
        ended: when it ended.
    """

    program: str
    step: int | None
    name: str
    began: float
    ended: float


_RECORDED: contextvars.ContextVar[deque[Span] | None] = contextvars.ContextVar("spans", default=None)


def now() -> float:
    """Return seconds since 1970, from a clock that never goes back within a process."""
    return _EPOCH + time.perf_counter()


@contextlib.contextmanager
def recorded() -> Iterator[deque[Span]]:
    """Collect the spans of this context, and of threads that run in a copy of it; they may append at any time."""
    found: deque[Span] = deque()
    token = _RECORDED.set(found)
    try:
        yield found
    finally:
        _RECORDED.reset(token)


def note(span: Span) -> None:
    """Record a span that has ended; it is ignored outside of a run."""
    if (found := _RECORDED.get()) is not None:
        found.append(span)


@contextlib.contextmanager
def span(name: str, step: int | None = None, program: str = TRAINER) -> Iterator[None]:
    """Record the time in this context, also if it ends with an error.

    >>> with recorded() as found, span("checkpoint", 3):
    ...     pass
    >>> [(each.program, each.name, each.step, each.began <= each.ended) for each in found]
    [('trainer', 'checkpoint', 3, True)]
    """
    began = now()
    try:
        yield
    finally:
        note(Span(program, step, name, began, now()))
