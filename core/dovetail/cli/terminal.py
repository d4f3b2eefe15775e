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
from typing import NoReturn

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


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Record interruptions in the yielded list, because a library being imported may turn one into another error."""
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
