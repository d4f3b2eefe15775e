"""The kinds that the lab opens: where the trials of a sweep run, and which of them are stopped early."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from dovetail.kinds import Kind

EXECUTOR: Final = Kind(
    name="executor",
    summary="where trials and workers run",
    protocol="dovetail_lab.kinds:Executor",
    scaffold="class",
)

EARLY_STOPPING: Final = Kind(
    name="early_stopping",
    summary="learning curves of a sweep's trials -> which of them to stop",
)


class Worker(Protocol):
    """A process that runs the trials of a sweep, one job after another, so that they share what is compiled."""

    def start(self, trials: Sequence[str]) -> None:
        """Begin a job and return at once: trials by id, several of them to be trained together as one population.

        What becomes of them is written to the sweep's folder by `dovetail_lab.sweep.run_job`, which the process calls.
        """
        ...

    def finished(self) -> bool:
        """Tell whether the job has ended.

        Raises:
            WorkerLost: if the process, or its machine, is gone.
        """
        ...

    def kill(self) -> None:
        """End the process and its children now, in the middle of a job or between jobs."""
        ...


class Workers(Protocol):
    """An open executor."""

    def open_worker(self, number: int) -> Worker:
        """Start worker `number`, counted from 0; the number of one that was killed may come again."""
        ...

    def close(self) -> None:
        """Let go of everything but the workers, which are killed before."""
        ...


class Executor(Protocol):
    """Kind `executor`: where the trials of a sweep run."""

    def open(self, sweep: Path, jobs: int) -> Workers:
        """Return what starts up to `jobs` workers at a time for a sweep's folder, which they all see.

        Raises:
            ConfigError: if it cannot be used here, and what to install or start.
        """
        ...
