"""Output streams, which may be closed, full or limited to ASCII, and interruptions, which may come during imports."""

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
    """Let stdout escape characters that its encoding lacks, as stderr does: formulas then print in the C locale."""
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
    """Make the signals that ask a program to end raise KeyboardInterrupt, and record them in the yielded list.

    They are recorded because a library being imported may turn the interrupt into another error. A terminal that
    closes, or a scheduler that stops a job, sends several signals: while one is being handled, which may include
    writing a checkpoint, further ones are ignored, except for Ctrl-C, by which a user says that this takes too long.
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
    """Flush stdout while a failure can still be reported.

    Raises:
        BrokenPipeError: if the reader has closed the pipe.
        RunError: if the output cannot be written.
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
    """Discard what stdout still buffers, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
