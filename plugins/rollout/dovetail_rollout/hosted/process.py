"""A process that serves us: started with a log, watched, and ended with everything it has started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from dovetail.errors import ConfigError, RunError

T = TypeVar("T")

GUARD = Path(__file__).with_name("guard.py")
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 2.0
LAST_LINES = 16
PORT_TRIES = 5
TAKEN = re.compile("address already in use", re.IGNORECASE)
"""What a server says that cannot listen on its port."""
EXCEPTION = re.compile(r"(?:^|\] )(\w*(?:Error|Exception): .*)")
"""The last line of a traceback, with or without a logger's prefix."""


class GuardedProcess:
    """A command that ends when it is closed or garbage-collected, and when this process ends in any way.

    Its output goes to the file `log`, which is removed at the end unless `epitaph` was called. A server among such
    processes is asked at `url`.
    """

    ours = True

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], name: str) -> None:
        self.name = name
        self.url = ""
        self.log = Path(tempfile.mkdtemp(prefix=f"dovetail-{name}-")) / "log.txt"
        self._mourned = threading.Event()
        self._ready_at = 0
        with self.log.open("ab") as out:
            out.write(f"$ {shlex.join(command)}\n".encode())
            out.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(GUARD), str(self._told), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._process, self.log, self._mourned)

    @property
    def status(self) -> int | None:
        """The command's exit status, -N for a signal, or None while it runs; its children may outlive it."""
        ended = self._process.poll()  # first: the guard, whose status is another, ends after it has told the command's
        return int(self._told.read_text()) if self._told.exists() else ended

    @property
    def _told(self) -> Path:
        return self.log.with_name("status")

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` returns true.

        Raises:
            RunError: if the process ends first or this takes longer, with the last lines of its log.
        """
        end = time.monotonic() + seconds
        while not ready():
            if self.status is not None:
                raise RunError(f"{self.name} did not start: {self.epitaph()}")
            if time.monotonic() > end:
                raise RunError(f"{self.name} was not ready after {seconds:g} s: {self.epitaph()}")
            time.sleep(0.05)
        self._ready_at = self.log.stat().st_size

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self._end()

    def epitaph(self) -> str:
        """Say how the process ended, or that it still runs, with the cause according to its log, which is kept.

        What is in the log of a start that succeeded is not the cause.
        """
        self._mourned.set()
        end = time.monotonic() + MOMENT_SECONDS
        while self.status is None and time.monotonic() < end:
            time.sleep(0.05)
        error = first_error(self.log, self._ready_at)
        cause = f": {error}" if error else ""
        return f"the process {_ended(self.status)}{cause}; the end of {self.log}:\n{last_lines(self.log)}"


def _ended(status: int | None) -> str:
    """Say in words how a process ended.

    >>> _ended(None), _ended(3), _ended(-15)
    ('still runs', 'ended with status 3', 'was ended by SIGTERM')
    """
    if status is None:
        return "still runs"
    if status == -signal.SIGKILL:
        return "was killed (SIGKILL), as the kernel does where memory runs out"
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _end(process: subprocess.Popen[bytes], log: Path, mourned: threading.Event) -> None:
    assert process.stdin is not None, "it is a pipe"
    process.stdin.close()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if not mourned.is_set():
        shutil.rmtree(log.parent, ignore_errors=True)


def last_lines(log: Path, number: int = LAST_LINES) -> str:
    """Return the end of a log, indented."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 100 * 1024))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line.rstrip()}" for line in lines[-number:])


def first_error(log: Path, start: int = 0) -> str:
    """Return the first exception in a log from a byte on, the cause of those that follow; empty without one."""
    with log.open("rb") as file:
        file.seek(start)
        lines = (line.decode(errors="replace") for line in file)
        return next((found[1].strip() for line in lines if (found := EXCEPTION.search(line))), "")


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_a_free_port(start: Callable[[], T]) -> T:
    """Start a server; again if another program has taken its port between the choice of it and its use.

    Args:
        start: chooses a port and waits for the server.

    Raises:
        RunError: if `start` does so for another reason, or for this one each time.
    """
    for _ in range(PORT_TRIES - 1):
        try:
            return start()
        except RunError as error:
            if not TAKEN.search(str(error)):
                raise
    return start()


def find_python(given: str | None, setting: str, variable: str) -> str | None:
    """Return the interpreter named by a setting or else by an environment variable, or None.

    Raises:
        ConfigError: if there is no such program.
    """
    python = given or os.environ.get(variable)
    if python is not None and shutil.which(python) is None:
        raise ConfigError(f"{setting if given else variable} = {python!r}: there is no such interpreter")
    return python
