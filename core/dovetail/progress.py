"""What a run is doing at the moment, for whoever watches it.

A run says what it begins (`begin`) and engines how far they are (`so_far`); nothing of it is recorded. Whoever watches
also learns when something is being compiled, which may take longer than what is compiled for.
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
"""Seconds of tracing from which on compiling takes a while; JAX compiles hundreds of small programs beside."""


@attrs.frozen
class Doing:
    """What a run is doing.

    Attributes:
        what: in a word or a few: 'sampling', 'update'.
        detail: what is known of its size.
        done: how many of `total` are done, where that is counted.
        total: how many there are.
        compiling: it is being compiled.
        program: which program of the run does it, if there are several; the main one has no name.

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
    """A sink that is told what the run is doing."""

    def tell(self, doing: Doing) -> None:
        """Take what the run is doing from now on."""
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
    """Have the watchers told what happens in this context; without any, telling costs nothing."""
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
    """Have whoever watches told what another program of the run does, in a thread and a context of its own."""
    watched = _CURRENT.get()
    token = _CURRENT.set(None if watched is None else _Watched(watched.watchers, name))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_watched() -> bool:
    """Tell whether anybody is told."""
    return _CURRENT.get() is not None


def begin(what: str, detail: str = "", total: int | None = None) -> None:
    """Say what begins; it lasts until the next thing begins."""
    if (watched := _CURRENT.get()) is not None:
        watched.change(Doing(what, detail, None if total is None else 0, total))


def so_far(what: str, done: int, total: int) -> None:
    """Say how far something is; nobody is told if the run calls what it is doing by another name.

    An engine counts completions while it is `sampling`; in an evaluation prompts are counted instead.
    """
    watched = _CURRENT.get()
    if watched is not None and watched.doing is not None and watched.doing.what == what:
        watched.change(Doing(what, watched.doing.detail, done, total))


@functools.cache
def _listen() -> None:
    """Hear of compilations: what has been traced is compiled next."""
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
    """Write a number of bytes as people say it.

    >>> in_bytes(999), in_bytes(1.0e6), in_bytes(12.34e9)
    ('999 B', '1.0 MB', '12.3 GB')
    """
    for unit, prefix in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {prefix}"
    return f"{size:.0f} B"


def counted(what: str, total: int) -> Callable[[int], None]:
    """Return a function that is told how many of `total` are done."""
    return lambda done: so_far(what, done, total)
