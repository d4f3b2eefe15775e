"""Output streams, which may be closed, full, limited to ASCII, or read by nobody any more."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from dovetail.errors import RunError


@contextmanager
def streams() -> Iterator[Streams]:
    """Let no failure to write to stdout or stderr end the work; what could not be written is lost.

    Otherwise a run would end with the `head` that its log goes through, in the middle of a step. Stdout escapes
    characters that its encoding lacks, as stderr does: formulas then print in the C locale.
    """
    take_standard_descriptors()
    with ExitStack() as stack:
        yield Streams(*(stack.enter_context(_replaced(name)) for name in ("stdout", "stderr")))


def take_standard_descriptors() -> None:
    """Open the null device in place of stdin, stdout and stderr that are closed.

    Otherwise the next file that is opened would have that number, and what a library in C or another process writes to
    "stderr" would go into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


class Streams:
    """The standard streams of a command; None if one is closed, or is not a file."""

    def __init__(self, out: _Unfailing | None, err: _Unfailing | None) -> None:
        self._out, self._err = out, err

    def finish(self) -> None:
        """Flush the output while a failure can still be reported; that nobody has read all of it is none.

        Raises:
            RunError: if something of stdout could not be written.
        """
        with suppress(ValueError, AttributeError):  # closed, by the shell or by a plugin
            sys.stdout.flush()
        if self._out is not None and self._out.failure is not None:
            raise RunError(f"the output cannot be written: {self._out.failure.strerror or self._out.failure}")


class _Unfailing(io.FileIO):
    """A file descriptor that takes everything, and remembers why it could not be written."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int | None:
        """Write what can be written."""
        try:
            return super().write(data)
        except OSError as error:
            if _is_deserted(self.fileno(), error):
                _desert(self.fileno())
            else:
                self.failure = error
            return memoryview(data).nbytes


def _is_deserted(number: int, error: OSError) -> bool:
    """Tell whether the reader of a pipe is gone, or the terminal."""
    return error.errno in (errno.EPIPE, errno.EIO) and not stat.S_ISREG(os.fstat(number).st_mode)


def _desert(number: int) -> None:
    """Let what else writes to a descriptor, such as a library at exit, not find out in its turn."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def _replaced(name: str) -> Iterator[_Unfailing | None]:
    stream = getattr(sys, name)
    try:
        raw = _Unfailing(stream.fileno(), "wb", closefd=False)
    except (AttributeError, OSError, ValueError):  # None, in memory, closed
        with _escaping(stream):
            yield None
        return
    instead = _like(stream, raw)
    with suppress(OSError):
        stream.flush()
    setattr(sys, name, instead)
    try:
        yield raw
    finally:
        with suppress(ValueError):  # closed by a plugin
            instead.flush()
        if getattr(sys, name) is instead:
            setattr(sys, name, stream)


def _like(stream: Any, raw: io.FileIO) -> io.TextIOWrapper:
    """Return a stream that writes to another place, and is as much buffered."""
    through = getattr(stream, "write_through", False)
    return io.TextIOWrapper(
        raw if through else io.BufferedWriter(raw),  # pyright: ignore[reportArgumentType] - as Python does with -u
        encoding=stream.encoding,
        errors="backslashreplace" if _is_strict(stream) else stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=through,
    )


def _is_strict(stream: Any) -> bool:
    return getattr(stream, "errors", None) in ("strict", "surrogateescape")


@contextmanager
def _escaping(stream: Any) -> Iterator[None]:
    if not isinstance(stream, io.TextIOWrapper) or not _is_strict(stream):
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stream.reconfigure(errors=before)
