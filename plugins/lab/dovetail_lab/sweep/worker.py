"""What happens in a worker: trials of a sweep, one after another in one process, each in its run folder.

    python -m dovetail_lab.sweep.worker SWEEP

reads jobs from stdin, a JSON list of trial ids on each line, and answers each with a line when it has ended. What
became of the trials is in the sweep's folder. The end of stdin, which is the end of the driver, ends the worker after
its job. SIGTERM and SIGHUP end it now: a trial writes its checkpoint, as `dovetail train` does, and goes on from there
in the next worker. The trials of a population end their step first, as signals do not reach their threads.
"""

from __future__ import annotations

import contextvars
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, TextIO

import attrs

from dovetail.config import load, run_id
from dovetail.errors import DovetailError, RunError
from dovetail.hookspecs import hookimpl
from dovetail.interruptions import ignore_further, interruptions
from dovetail.registry import plugin_manager
from dovetail_lab.sweep.store import CONFIG, LOG, Store
from dovetail_lab.sweep.trial import Trial

AT_HAND: contextvars.ContextVar[AtHand | None] = contextvars.ContextVar("trial at hand", default=None)


@attrs.frozen
class AtHand:
    """The trial that this thread runs, and what is to be done when it ends a step."""

    store: Store
    trial: Trial
    end_step: Callable[[], None]


class Asked(KeyboardInterrupt):
    """Somebody asks for the end of a trial. A run takes it for the interrupt of a user."""


class Paused(Asked):
    """A trial has made the checkpoint at which it waits for what a sampler decides."""


class _Listener:
    """Looks at every step whether anybody asks for the end of the trial at hand, and keeps a population in step."""

    @hookimpl
    def dovetail_checkpoint(self, folder: Path) -> None:
        """Pause where that is asked."""
        at_hand = AT_HAND.get()
        if at_hand and int(folder.name) >= at_hand.store.pauses_at(at_hand.trial):
            raise Paused

    @hookimpl
    def dovetail_step_end(self) -> None:
        """Stop if so; else wait for the others."""
        self._look()

    @hookimpl
    def dovetail_evaluation(self) -> None:
        """Likewise: evaluations take long, and those of a population are made side by side."""
        self._look()

    def _look(self) -> None:
        if at_hand := AT_HAND.get():
            if at_hand.store.all_asked_to_stop or at_hand.store.asked_to_stop(at_hand.trial):
                raise Asked
            at_hand.end_step()


def run_job(sweep: Path, ids: Sequence[str]) -> None:
    """Run trials: one, or several as one population. What becomes of them is written to the sweep's folder.

    Raises:
        RunError: if a trial is in use by another process.
    """
    from dovetail.run.process import prepare

    prepare()
    store = Store.open(sweep)
    trials = [store.find(each) for each in ids]
    if plugin_manager().get_plugin("sweep") is None:
        plugin_manager().register(_Listener(), "sweep")
    if len(trials) == 1:
        with _output_to(store.folder(trials[0]) / LOG):
            run_trial(store, trials[0])
    else:
        run_population(store, trials)


def run_population(store: Store, trials: Sequence[Trial]) -> None:
    """Train several trials as one, each in a thread. What native code prints goes to the worker's own output."""
    from dovetail_lab.sweep.population import Population

    population, output = Population(len(trials)), _ByThread(sys.stdout)

    def run(number: int, trial: Trial) -> None:
        with population.member(number), (store.folder(trial) / LOG).open("a", buffering=1) as log:
            output.of_thread.set(log)
            run_trial(store, trial, population.align)

    with interruptions(), redirect_stdout(output), redirect_stderr(output), ThreadPoolExecutor(len(trials)) as threads:
        members = [threads.submit(run, *each) for each in enumerate(trials)]
        # a signal interrupts this thread alone; the others see it before their next step, and save their state. Not
        # by Thread.join: up to Python 3.12, one that a signal interrupts takes the thread for ended (CPython gh-90882)
        try:
            wait(members)
        except KeyboardInterrupt:
            wait(members)
            raise
    for member in members:
        member.result()


class _ByThread(io.TextIOBase):
    """A stdout that is another one in each thread."""

    def __init__(self, default: TextIO) -> None:
        self.of_thread: contextvars.ContextVar[TextIO] = contextvars.ContextVar("stdout", default=default)

    def write(self, text: str) -> int:
        return self.of_thread.get().write(text)

    def flush(self) -> None:
        self.of_thread.get().flush()


def run_trial(store: Store, trial: Trial, end_step: Callable[[], None] = lambda: None) -> None:
    """Train in the trial's folder, from wherever it stands, and record the end."""
    from dovetail.training.loop import train
    from dovetail_lab.summary import summarise

    folder = store.folder(trial)
    with store.claim(trial) as state:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"--- {trial.label}: attempt {state.attempts} on {state.host} (pid {state.pid}), {when}", flush=True)
        token = AT_HAND.set(AtHand(store, trial, end_step))
        try:
            config = load(folder / CONFIG)
            if run_id(config) != trial.id:
                raise RunError(f"the config is now run {run_id(config)}: the versions of the plugins have changed")
            if store.newest_checkpoint(trial) >= store.pauses_at(trial):
                raise Paused  # it had been made when the process was killed
            train(config, folder)
            print(summarise(folder), flush=True)
            end_step()  # nobody of a population is done before all have written their last checkpoint
            store.settle(trial, "done")
        except Paused:
            store.settle(trial, "paused", f"at checkpoint {store.newest_checkpoint(trial)}")
        except Asked:
            if asked := store.asked_to_stop(trial):
                store.settle(trial, *asked)
        except DovetailError as error:
            print(f"error: {error}", flush=True)
            store.settle(trial, "failed", _one_line(error))
        except Exception as error:
            traceback.print_exc()
            store.settle(trial, "failed", f"{type(error).__name__}: {_one_line(error)}")
        finally:
            AT_HAND.reset(token)


def _one_line(error: Exception, limit: int = 300) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:limit] if lines else ""


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Send what this process prints to a file, native code included."""
    with path.open("a", buffering=1) as log:
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            with redirect_stdout(log), redirect_stderr(log):
                yield
        finally:
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)


def serve(sweep: Path, jobs: IO[str], answers: IO[str]) -> None:
    """Run jobs until there are no more."""
    for line in jobs:
        run_job(sweep, json.loads(line))
        answers.write("\n")
        answers.flush()


def main() -> None:
    """Serve the driver that started this process."""
    # what a trial prints to stdout must never be taken for an answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with interruptions() as came:
        try:
            serve(Path(sys.argv[1]), sys.stdin, answers)
        except KeyboardInterrupt:
            ignore_further()
            sys.exit(128 + (came[0] if came else signal.SIGINT))


if __name__ == "__main__":
    main()
