"""What ends a program too early: signals, which may come where an exception gets lost, and an end without a word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import NoReturn

_NAMED = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
_DEFAULTS = {getattr(signal, name): default for name, default in _NAMED.items() if hasattr(signal, name)}
"""The signals that ask for the end, and what becomes of them where nobody has chosen otherwise, as `nohup` does."""

_HEARD: list[list[int]] = []
"""The signals that have come, of each `interruptions` that is entered at the moment."""
_WHOLE: list[bool] = []
"""An entry for each `uninterrupted` that is entered at the moment."""


@contextmanager
def no_silent_success() -> Iterator[None]:
    """Let `os._exit(0)` in this process raise SystemExit: nothing of the work is saved then, and it looks done.

    Forked children end like this when they are done, and other statuses are not taken for success.
    """
    own, leave = os.getpid(), os._exit

    def end(status: int) -> NoReturn:
        if status == 0 and os.getpid() == own:
            raise SystemExit(0)
        leave(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Make the signals that ask a program to end raise KeyboardInterrupt, and record them in the yielded list.

    They are recorded because a library being imported may turn the interrupt into another error. A terminal that
    closes, or a scheduler that stops a job, sends several signals: while one is being handled, which may include
    writing a checkpoint, further ones are ignored, except for Ctrl-C, by which a user says that this takes too long.
    Where Python drops an interrupt, see `stop_if_asked`, or a signal that comes just as its handler is being replaced,
    it would print a traceback: it says nothing. Handlers that others have set stay, and in other threads than the main
    one, to which no signal comes, nothing changes.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    _HEARD.append(came)

    def note(number: int, frame: FrameType | None) -> None:
        later = _WHOLE and not (number == signal.SIGINT and came)
        dealt_with = number != signal.SIGINT and _dealt_with()
        came.append(number)
        if not (later or dealt_with):
            raise KeyboardInterrupt

    report = sys.unraisablehook

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        replaced = "ignored due to race condition" in str(dropped.exc_value)
        if not (replaced or (came and dropped.exc_type is KeyboardInterrupt)):
            report(dropped)

    changed = {number: default for number, default in _DEFAULTS.items() if signal.getsignal(number) == default}
    for number in changed:
        signal.signal(number, note)
    sys.unraisablehook = report_others
    try:
        yield came
    finally:
        _HEARD[:] = [heard for heard in _HEARD if heard is not came]
        for number, default in changed.items():
            if signal.getsignal(number) is note:
                signal.signal(number, default)
        # a hook that came later stays: it is for what comes after the end, and has ours behind it
        sys.unraisablehook = report if sys.unraisablehook is report_others else sys.unraisablehook


def ignore_further() -> None:
    """Ignore from now on the signals by which others ask this process to end: it does. Ctrl-C still cuts it short.

    Its status would be that of the second of two signals, and what closes at exit, such as a server, would be killed.
    """
    for number in _DEFAULTS.keys() - {signal.SIGINT}:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Leave an interrupt to the next `stop_if_asked`, unless it is the second Ctrl-C.

    An update takes over the memory of the old parameters: interrupted halfway, it would leave nothing to save.
    """
    _WHOLE.append(True)
    try:
        yield
    finally:
        _WHOLE.pop()


def has_come() -> bool:
    """Tell whether a signal has come since `interruptions` was entered."""
    return any(_HEARD)


IS_ASKED: ContextVar[Callable[[], bool]] = ContextVar("whether this thread is asked to end", default=has_come)
"""What `stop_if_asked` asks. Runs that share their compiled calls set another one, to end after the same step."""


def stop_if_asked() -> None:
    """Raise the interrupt that a signal has asked for, at a place where it cannot be lost.

    Python drops an exception that is raised in a destructor or a callback of the garbage collector, and JAX has both.

    Raises:
        KeyboardInterrupt: if a signal has come since `interruptions` was entered.
    """
    if IS_ASKED.get()():
        raise KeyboardInterrupt


def _dealt_with() -> bool:
    """Tell whether an interrupt is being handled in what a signal has come between."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
