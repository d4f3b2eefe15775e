"""Runs trials in processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import attrs

from dovetail.errors import WorkerLost

LOG = "worker-{number}.log"
PATIENCE_SECONDS = 5.0


@attrs.frozen(kw_only=True)
class Local:
    """Runs workers as processes on this machine, each in its own session, so that its children end with it.

    If the driver dies, a worker finishes its trial and ends.

    Args:
        gpus: ids of GPUs, assigned to the workers in turn. If empty, every worker gets all GPUs, which works for only
            one worker, because jax takes most of a GPU's memory when it starts. Workers that share a GPU allocate its
            memory on demand.
    """

    gpus: tuple[int, ...] = ()

    def open(self, sweep: Path, jobs: int) -> LocalWorkers:
        """Return an object that starts workers for a sweep's folder."""
        command = (sys.executable, "-m", "dovetail_lab.sweep.worker", str(sweep.absolute()))
        return LocalWorkers(sweep=sweep, command=command, gpus=self.gpus, shared=jobs > len(self.gpus))


@attrs.frozen(kw_only=True)
class LocalWorkers:
    """The open executor; workers run `command`."""

    sweep: Path
    command: tuple[str, ...]
    gpus: tuple[int, ...]
    shared: bool

    def open_worker(self, number: int) -> LocalWorker:
        """Start a process."""
        environment = dict(os.environ)
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(self.gpus[number % len(self.gpus)])
            if self.shared:
                environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        with (self.sweep / LOG.format(number=number)).open("ab") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
                start_new_session=True,
            )
        return LocalWorker(process)

    def close(self) -> None:
        """Do nothing, since there is nothing to release besides the workers."""


class LocalWorker:
    """A worker process, and a thread that waits for its answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._idle = threading.Event()
        self._gone = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as answers:
            for _ in answers:
                self._idle.set()
        self._process.wait()
        self._gone.set()

    def start(self, trials: Sequence[str]) -> None:
        """Send a job; `finished` raises if the process is gone."""
        assert self._process.stdin is not None, "it is a pipe"
        self._idle.clear()
        try:
            self._process.stdin.write(json.dumps(list(trials)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()

    def finished(self) -> bool:
        """Return whether the process has answered."""
        if self._gone.is_set() and not self._idle.is_set():
            raise WorkerLost(_epitaph(self._process.returncode))
        return self._idle.is_set()

    def kill(self) -> None:
        """End the process and its children: SIGTERM first, then SIGKILL for what is left of them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_SECONDS)
            os.killpg(self._process.pid, signal.SIGKILL)  # also if it has ended: a child may have ignored the first
        self._process.wait()
        self._listener.join(PATIENCE_SECONDS)
        assert self._process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def _epitaph(code: int) -> str:
    """Say how a process ended.

    >>> _epitaph(-9)
    'its process was killed by SIGKILL (out of memory, or somebody killed it)'
    """
    if code == -signal.SIGKILL:
        return "its process was killed by SIGKILL (out of memory, or somebody killed it)"
    return (
        f"its process was killed by {signal.Signals(-code).name}" if code < 0 else f"its process ended, status {code}"
    )
