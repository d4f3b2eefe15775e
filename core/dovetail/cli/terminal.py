"""Output streams, which may be closed, full or limited to ASCII."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
