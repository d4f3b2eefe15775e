"""The current activity of a run, for progress displays.

A run announces each activity (`begin`), and engines report their progress (`so_far`); nothing of this is recorded.
Watchers are also notified while a program is being compiled, which may take longer than running it.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Final, Protocol, runtime_checkable

import attrs

SAMPLING: Final = "sampling"
LOADING: Final = "loading"

TRACED: Final = "/jax/core/compile/jaxpr_trace_duration"
COMPILED: Final = "/jax/core/compile/backend_compile_duration"
WORTH_TELLING: Final = 0.1
"""A program that takes more seconds than this to trace is reported as compiling. JAX also compiles hundreds of small
ones."""


@attrs.frozen
class Doing:
    """An activity of a run.

    Attributes:
        what: its name, in a word or a few: 'sampling', 'update'.
        detail: its size, as text.
        done: how many of `total` items are done, if they are counted.
        total: how many items there are.
        compiling: whether the program for it is being compiled.
        program: the part of the run that performs it, if there are several; empty for the main one.

    >>> print(Doing("sampling", done=120, total=512)), print(Doing("update", compiling=True))
    sampling 120 / 512
    compiling update
    (None, None)
    """

    what: str
    detail: str = ""
    done: int | None = None
    total: int | None = None
    compiling: bool = False
    program: str = ""

    def __str__(self) -> str:
        if self.program:
            return f"{self.program}: {attrs.evolve(self, program='')}"
        if self.compiling:
            return f"compiling {self.what}"
        counted = f"{self.done} / {self.total}" if self.total is not None else ""
        return " ".join(word for word in (self.what, self.detail, counted) if word)


@runtime_checkable
class Watcher(Protocol):
    """A sink that is notified of the current activity."""

    def tell(self, doing: Doing) -> None:
        """Receive the activity of the run, which has just changed."""
        ...


@attrs.define
class _Watched:
    watchers: tuple[Watcher, ...]
    program: str = ""
    doing: Doing | None = None

    def change(self, doing: Doing) -> None:
        self.doing = doing = attrs.evolve(doing, program=self.program)
        for watcher in self.watchers:
            watcher.tell(doing)


_CURRENT: contextvars.ContextVar[_Watched | None] = contextvars.ContextVar("watched", default=None)


@contextlib.contextmanager
def watched_by(*watchers: Watcher) -> Iterator[None]:
    """Notify the watchers of activities in this context; without watchers, reporting costs nothing."""
    if not watchers:
        yield
        return
    _listen()
    token = _CURRENT.set(_Watched(watchers))
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextlib.contextmanager
def of_program(name: str) -> Iterator[None]:
    """Report activities in this context, usually that of a thread, under the name of another program of the run."""
    watched = _CURRENT.get()
    token = _CURRENT.set(None if watched is None else _Watched(watched.watchers, name))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_watched() -> bool:
    """Tell whether there are watchers."""
    return _CURRENT.get() is not None


def begin(what: str, detail: str = "", total: int | None = None) -> None:
    """Report that an activity begins; it lasts until the next one begins."""
    if (watched := _CURRENT.get()) is not None:
        watched.change(Doing(what, detail, None if total is None else 0, total))


def so_far(what: str, done: int, total: int) -> None:
    """Report the progress of an activity; ignored if the current activity has another name.

    An engine counts completions during `sampling`; in an evaluation the activity is another, and counts prompts.
    """
    watched = _CURRENT.get()
    if watched is not None and watched.doing is not None and watched.doing.what == what:
        watched.change(Doing(what, watched.doing.detail, done, total))


@functools.cache
def _listen() -> None:
    """Listen for JAX's compilation events: a program that has been traced is compiled next."""
    import jax

    def heard(event: str, duration_secs: float, **_: str | int) -> None:
        watched = _CURRENT.get()
        if watched is None or watched.doing is None or watched.doing.what == LOADING:
            return
        if event == TRACED and duration_secs > WORTH_TELLING:
            watched.change(attrs.evolve(watched.doing, compiling=True))
        elif event == COMPILED and watched.doing.compiling:
            watched.change(attrs.evolve(watched.doing, compiling=False))

    jax.monitoring.register_event_duration_secs_listener(heard)


def in_bytes(size: float) -> str:
    """Format a number of bytes with a decimal unit.

    >>> in_bytes(999), in_bytes(1.0e6), in_bytes(12.34e9)
    ('999 B', '1.0 MB', '12.3 GB')
    """
    for unit, prefix in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {prefix}"
    return f"{size:.0f} B"


def counted(what: str, total: int) -> Callable[[int], None]:
    """Return a function that reports how many of `total` items of an activity are done."""
    return lambda done: so_far(what, done, total)
