"""What a command writes to, which may be full, closed or ASCII, and what interrupts it, maybe while it imports."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dovetail.errors import RunError


@contextmanager
def streams() -> Iterator[None]:
    """Let stdout escape what its encoding cannot show, as stderr does: a formula is not an error in the C locale."""
    stream = sys.stdout
    before = getattr(stream, "errors", None)
    if not isinstance(stream, io.TextIOWrapper) or before not in ("strict", "surrogateescape"):
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stream.reconfigure(errors=before)


_DEFAULTS = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
"""The signals that ask for the end, and what becomes of them where nobody has chosen otherwise, as `nohup` does."""


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Have the signals that ask for the end raise KeyboardInterrupt, and note them.

    They are noted since a library that is being imported may turn the interrupt into an error of its own. A terminal
    that closes and a scheduler that stops a job send several: while one is dealt with, which may be by writing a
    checkpoint, others are let pass, but for Ctrl-C, with which somebody says that this takes too long.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        dealt_with = number != signal.SIGINT and _dealt_with()
        came.append(number)
        if not dealt_with:
            raise KeyboardInterrupt

    changed = {}
    if threading.current_thread() is threading.main_thread():
        defaults = {getattr(signal, name): default for name, default in _DEFAULTS.items() if hasattr(signal, name)}
        changed = {number: default for number, default in defaults.items() if signal.getsignal(number) == default}
    for number in changed:
        signal.signal(number, note)
    try:
        yield came
    finally:
        for number, default in changed.items():
            signal.signal(number, default)


def _dealt_with() -> bool:
    """Tell whether an interrupt is being handled in what a signal has come between."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def flush() -> None:
    """Write out what stdout holds, while there is somebody to say that it cannot be.

    Raises:
        BrokenPipeError: if nobody reads it any more.
        RunError: if it cannot be written.
    """
    if sys.stdout is None or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence()
        raise RunError(f"the output cannot be written: {error.strerror or error}") from error


def silence() -> None:
    """Send to nowhere what stdout still holds, which Python would try to write once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
