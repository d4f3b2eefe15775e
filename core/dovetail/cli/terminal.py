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
from typing import NoReturn

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


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Note the interruptions that come: a library that is being imported may turn one into an error of its own."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
