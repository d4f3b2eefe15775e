"""The kinds that the lab opens: what a sweep tries, where its trials run, and which of them are stopped early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from dovetail.kinds import Kind

if TYPE_CHECKING:
    from dovetail_lab.sweep.distributions import Distribution

EXECUTOR: Final = Kind(
    name="executor",
    summary="where trials and workers run",
    protocol="dovetail_lab.kinds:Executor",
    scaffold="class",
)

EARLY_STOPPING: Final = Kind(
    name="early_stopping",
    summary="learning curves of a sweep's trials -> which of them to stop",
    offers=("curve", "others", "total_steps"),
    protocol="dovetail_lab.kinds:EarlyStopping",
)

SAMPLER: Final = Kind(
    name="sampler",
    summary="results of a sweep so far -> the settings to try next",
    protocol="dovetail_lab.kinds:Sampler",
    scaffold="class",
)

KINDS: Final = (EXECUTOR, EARLY_STOPPING, SAMPLER)


@attrs.frozen(kw_only=True)
class Proposal:
    """A setting to try. Proposals are numbered from 0 in the order in which they were asked for.

    Attributes:
        values: key -> value, for every key of the space.
        seed: how far the seed of its run is from the first seed of the sweep; None: it is run with each of them.
        until: the step at which it pauses and is reported; None: the last. It needs a checkpoint at that step.
        goes_on_with: the number of a paused proposal whose run this one is, from where it paused.
        copies: the number of a paused proposal with whose weights, optimiser and records it begins.
        instead_of: the number of a proposal that ends because of it.
    """

    values: Mapping[str, Any]
    seed: int | None = None
    until: int | None = None
    goes_on_with: int | None = None
    copies: int | None = None
    instead_of: int | None = None


@attrs.frozen(kw_only=True)
class Result:
    """What a proposal has come to, as the mean over its seeds.

    Attributes:
        value: the last value of the metric, signed so that higher is better; never NaN or infinite. None if a run of it
            failed or was stopped early, or if its last value is not finite.
        curve: its (step, value) pairs, signed likewise, without what is not finite; empty if a run of it failed.
    """

    value: float | None
    curve: tuple[tuple[int, float], ...] = ()


class EarlyStopping(Protocol):
    """Kind `early_stopping`: a rule that is asked about a running trial at each of its values.

    It may leave out an argument that it does not read. `dovetail_lab.sweep.stopping.Curve` is the type of a curve.
    It need not be monotone: a test of significance may stop a trial that it would let go on with one value lower, as an
    outlier widens the spread. But it never stops the trial that is ahead of all others, unless it is `absolute`.
    """

    def __call__(self, curve: list[tuple[int, float]], others: list[list[tuple[int, float]]], total_steps: int) -> bool:
        """Return whether to stop the trial.

        Args:
            curve: the (step, value) pairs of the trial so far; higher is better, and what is not finite is -inf.
            others: those of the other trials, ended or not, that have at least one value.
            total_steps: the number of steps of the trial.
        """
        ...


class Study(Protocol):
    """An open sampler. What it answers depends on nothing but what it was opened with, asked and told.

    A sweep that goes on replays the questions and results of `study.jsonl`, so a study keeps nothing on the disk.
    """

    def ask(self) -> Proposal | None:
        """Return the next proposal; None if there is none, or none before more results are told."""
        ...

    def tell(self, number: int, result: Result) -> None:
        """Take the result of a proposal; results come in any order, each once."""
        ...


class Sampler(Protocol):
    """Kind `sampler`: which settings a sweep tries."""

    @property
    def learns(self) -> bool:
        """Whether results change what is asked; the settings of one that does not are all known in advance."""
        ...

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> Study:
        """Begin a study.

        Args:
            space: key -> distribution, a `dovetail_lab.sweep.distributions.Distribution`. Its `at(share)` is the value
                with that share of it, 0 to 1 (both included), below; `draw(seed, key, index)` is a value at a share
                drawn from these three; `allows(value)` tells whether it can be drawn. Both `at` and `draw` round
                `uniform` and `loguniform` to six significant digits, so that a draw of `uniform(0, 1)` may be 1. The
                share itself is `uniform01(seed, key, index)` of the same module, in [0, 1) and not rounded. It also has
                a `form`, `loguniform`, `uniform`, `int` or `choice`, and `arguments`, as in `choice`, `("a", "b")`.
            draws: how many settings are asked for, or the size of a population. More draws begin with those of fewer.
            seed: `sweep.draw_seed`.
            total_steps: `train.steps` of a trial.

        Raises:
            ConfigError: if a library is missing, or the sampler cannot handle the space.
        """
        ...


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
