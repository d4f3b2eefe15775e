"""Import a plugin so that nothing it does to the process while it is imported reaches the command."""

from __future__ import annotations

import contextlib
import io
import locale
import os
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from typing import Any, TextIO

import attrs

_STREAMS = {1: "stdout", 2: "stderr"}
_OF_JAX = ("TF_CPP_", "TPU_", "LIBTPU_", "GRPC_", "TENSORSTORE_", "ENABLE_RUNTIME_UPTIME_TELEMETRY")
"""Variables that JAX sets when it is imported, as a plugin in a single file does."""


@contextlib.contextmanager
def undisturbed() -> Generator[list[str]]:
    """Undo, on leaving, what the body did to the working folder, stdout, stderr, signal handlers and the locale.

    The environment is left as it is: a library may have read the variable already, or rely on it.

    Yields:
        A list that is filled on leaving, one entry for each thing that the body did: `changed the working folder`.
        It stays empty in a thread other than the main one, where others may have done the same.
    """
    did: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield did
        return
    before = _State.now()
    try:
        yield did
    finally:
        did += before.restored()


def said_of(did: Sequence[str], variables: Sequence[str] = ()) -> str:
    """Return the message for an author whose module did these things to the process; empty if it did none.

    Args:
        did: what `undisturbed` found and undid.
        variables: what `environment_changes` found, which is left as it is.
    """
    parts = [f"{', '.join(what)} ({end})" for what, end in ((did, "undone"), (variables, "left")) if what]
    if not parts:
        return ""
    return f"while it was imported it {' and '.join(parts)}; do that in the component when it is called"


def environment_changes(before: dict[str, str]) -> list[str]:
    """Return the variables that differ from an earlier copy of the environment: `set the variable 'A'`."""
    now = dict(os.environ)
    differ = (name for name in before | now if before.get(name) != now.get(name))
    changed = sorted(name for name in differ if not name.startswith(_OF_JAX))
    return [f"{'set' if name in now else 'removed'} the environment variable '{name}'" for name in changed]


@attrs.frozen
class _State:
    """What a process has only one of."""

    folder: str | None
    locale: str
    handlers: dict[int, Any]
    streams: dict[str, TextIO]
    files: dict[int, int]
    """A second descriptor for each of stdout and stderr, from which one that is closed can be opened again."""

    @classmethod
    def now(cls) -> _State:
        files = {}
        for number in _STREAMS:
            with contextlib.suppress(OSError):  # closed since the process began
                files[number] = os.dup(number)
        return cls(
            folder=_folder(),
            locale=locale.setlocale(locale.LC_ALL),
            handlers={number: signal.getsignal(number) for number in signal.valid_signals()},
            streams={name: getattr(sys, name) for name in _STREAMS.values()},
            files=files,
        )

    def restored(self) -> list[str]:
        """Restore what has changed, and return a phrase for each such thing."""
        did = []
        if self.folder is not None and _folder() != self.folder:
            did.append("changed the working folder")
            with contextlib.suppress(OSError):  # it was removed
                os.chdir(self.folder)
        for number, spare in self.files.items():
            if not _same_file(number, spare):
                did.append(f"closed or redirected the file of {_STREAMS[number]}")
                os.dup2(spare, number)
            os.close(spare)
        did += [said for number, name in _STREAMS.items() if (said := self._restore_stream(number, name))]
        for number, handler in self.handlers.items():
            # None is a handler that was not set from Python, and that Python cannot set again
            if signal.getsignal(number) is not handler and handler is not None:
                did.append(f"changed the handler of {getattr(number, 'name', number)}")
                signal.signal(number, handler)
        if locale.setlocale(locale.LC_ALL) != self.locale:
            did.append("changed the locale")
            locale.setlocale(locale.LC_ALL, self.locale)
        return did

    def _restore_stream(self, number: int, name: str) -> str | None:
        before, now = self.streams[name], getattr(sys, name)
        if before is None or (now is before and not before.closed):
            return None
        setattr(sys, name, before)
        if not before.closed:
            return f"replaced {name}"
        if isinstance(before, io.TextIOWrapper):
            # the same object is opened again, because logging handlers and others hold it
            errors, encoding = before.errors, before.encoding
            before.__init__(open(number, "wb", closefd=False), encoding, errors, line_buffering=True)  # noqa: SIM115
        return f"closed {name}"


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed
        return None


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # closed
        return False
