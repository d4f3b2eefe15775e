"""A sweep's folder: what is to run, what each trial has come to, and who is at it.

    sweep.json        the space and its trials; never changed but to add trials
    base.gin          the config without what varies
    files.json        the folders in which the relative paths of the configs were found
    driver            held (flock) by the command that hands out trials
    stop              asks the driver and its workers to stop
    trials/ID/        a run folder, with in addition
      state.json        what became of the trial; written whole and renamed
      claim             held (flock) by the process that runs the trial, and by no record of its pid: a lock ends with
                        its holder, however that ends
      log.txt           what the trial printed, attempt after attempt
      stop              asks for the end of this trial, and says why
      judged            the last step at which early stopping was asked about it
      pause             the number of the checkpoint at which it waits for what a sampler decides
      ancestor.json     whose weights and records it began with, and at which checkpoint
    set-aside/        trial folders that could not be read

Everything that shows a sweep reads these files and nothing else, so it works while the sweep runs and after it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from dovetail.config import Config, dump
from dovetail.config.located import note_files
from dovetail.errors import RunError, listing, nearest
from dovetail.run.files import hold, read_json, read_text, write_whole
from dovetail.run.folder import branch_folder
from dovetail_lab.recorded import figures, fitted, value_of
from dovetail_lab.sweep.names import short_names
from dovetail_lab.sweep.same import refuse_other_trials
from dovetail_lab.sweep.state import State, Status
from dovetail_lab.sweep.trial import Planned, Trial

FORMAT: Final = 1
RECORD, BASE, DRIVER, STOP, CLAIM, STATE, LOG, CONFIG, JUDGED, PAUSE, ANCESTOR = (
    "sweep.json",
    "base.gin",
    "driver",
    "stop",
    "claim",
    "state.json",
    "log.txt",
    "config.gin",
    "judged",
    "pause",
    "ancestor.json",
)
CLAIM_SECONDS = 2.0
TYPES: Final[Mapping[str, Any]] = {
    "config": str | None,
    "metric": str,
    "goal": Literal["max", "min"],
    "space": dict[str, Any],
    "trials": list[dict[str, Any]],
}
"""What is read of a sweep's record."""


@attrs.frozen
class Store:
    """An open sweep folder."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open a sweep that exists.

        Raises:
            RunError: if there is none, naming those beside it.
        """
        if not (path / RECORD).is_file():
            beside = [each.parent.name for each in path.parent.glob(f"*/{RECORD}")] if path.parent.is_dir() else []
            raise RunError(
                f"'{path}' is not a sweep folder (no {RECORD}).{nearest(path.name, beside)} There: {listing(beside)}"
            )
        return cls(path)

    @classmethod
    def create(cls, path: Path, planned: Planned, about: Mapping[str, Any], *, extend: bool = False) -> Store:
        """Make a sweep's folder, or open it again for the same trials.

        Args:
            path: the folder.
            planned: the trials.
            about: what else to record, as JSON: the space, the command, the metric.
            extend: allow trials in addition to those that are there.

        Raises:
            RunError: if the folder has other trials, with the difference, or cannot be written.
        """
        store = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (path / RECORD).exists():
                refuse_other_trials(store, planned, about, base=path / BASE, extend=extend)
            record = {"format": FORMAT, **about, "trials": [trial.record() for trial in planned.trials]}
            if planned.base:
                write_whole(path / BASE, dump(planned.base))
            for trial in planned.trials:
                store.prepare(trial, planned.configs[trial.id])
            write_whole(path / RECORD, json.dumps(record, indent=2) + "\n")
        except OSError as error:
            raise RunError(f"sweep folder '{path}' cannot be written: {error.strerror or error}") from error
        return store

    def prepare(self, trial: Trial, config: Config) -> None:
        """Make a trial's folder; the config of one that exists stays as it is."""
        folder = self.folder(trial)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / CONFIG).exists():
            write_whole(folder / CONFIG, dump(config))
        for each in (folder, self.path):  # the sweep's own, for the same command from another folder
            note_files(each, config)

    @property
    def record(self) -> dict[str, Any]:
        """What `sweep.json` says."""
        try:
            found = read_json(self.path / RECORD)
        except (OSError, ValueError) as error:
            raise RunError(f"'{self.path / RECORD}' cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise RunError(f"'{self.path / RECORD}' is not a record of a sweep that this version can read")
        try:
            checked = {name: value_of(hint, found[name], name) for name, hint in TYPES.items() if name in found}
        except ValueError as error:
            raise RunError(f"'{self.path / RECORD}' cannot be read: {error}") from error
        return found | checked

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials, in the order in which they are to run."""
        try:
            found = [fitted(Trial, each) for each in self.record["trials"]]
        except KeyError as error:
            raise RunError(f"'{self.path / RECORD}' has no list of trials") from error
        except ValueError as error:
            raise RunError(f"'{self.path / RECORD}' has a trial that cannot be read: {error}") from error
        names = short_names(key for trial in found for key in trial.values)
        return tuple(attrs.evolve(trial, names=names) for trial in found)

    def find(self, word: str) -> Trial:
        """Return the trial whose id is, or begins with, a word.

        Raises:
            RunError: if there is none, or several.
        """
        trials = self.trials
        found = [trial for trial in trials if trial.id == word] or [t for t in trials if t.id.startswith(word)]
        if len(found) != 1:
            what = "no trial" if not found else f"{len(found)} trials"
            ids = [trial.id for trial in found or trials]
            raise RunError(f"'{word}' names {what} of '{self.path}'.{nearest(word, ids)} Trials: {listing(ids)}")
        return found[0]

    def folder(self, trial: Trial) -> Path:
        """Return the trial's run folder."""
        return self.path / "trials" / trial.id

    def state(self, trial: Trial) -> State:
        """Return what became of a trial, as far as its files and locks tell."""
        held = is_held(self.folder(trial) / CLAIM)
        try:
            state = self._written(trial)
        except (OSError, ValueError, TypeError) as error:
            return State(status="corrupt", reason=f"{STATE}: {' '.join(str(error).split())}")
        if held:
            return attrs.evolve(state, status="running")
        if complaint := self._unreadable(trial, state):
            return attrs.evolve(state, status="corrupt", reason=complaint)
        return attrs.evolve(state, status="interrupted") if state.status == "running" else state

    def _written(self, trial: Trial) -> State:
        file = self.folder(trial) / STATE
        try:
            return fitted(State, read_json(file))
        except FileNotFoundError:
            return State()

    def _unreadable(self, trial: Trial, state: State) -> str:
        """Say what is wrong with the run in a trial's folder, if anything is."""
        folder = self.folder(trial)
        try:
            identity = read_json(folder / "run.json")
            if identity["run_id"] != trial.id:
                return f"run.json belongs to run {identity['run_id']}"
            if state.status == "done" and not (folder / "metrics.jsonl").exists():
                return "metrics.jsonl is gone"
        except FileNotFoundError:
            return "run.json is gone" if state.status == "done" else ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"run.json: {' '.join(str(error).split()) or type(error).__name__}"
        return ""

    def write_state(self, trial: Trial, state: State) -> None:
        """Record what became of a trial."""
        write_whole(self.folder(trial) / STATE, json.dumps(attrs.asdict(state), indent=2) + "\n")

    def settle(self, trial: Trial, status: Status, reason: str = "") -> State:
        """Record the end of an attempt, by the process that ran it or, once that is gone, by the driver."""
        state = attrs.evolve(self._written(trial), status=status, ended=time.time(), reason=reason)
        self.write_state(trial, state)
        with suppress(FileNotFoundError):
            (self.folder(trial) / STOP).unlink()
        return state

    @contextmanager
    def claim(self, trial: Trial) -> Iterator[State]:
        """Hold a trial while it runs; its state says so, and counts the attempt.

        Raises:
            RunError: if another process has it.
        """
        with hold(self.folder(trial) / CLAIM, f"trial {trial.id}", patience=CLAIM_SECONDS):
            attempts = self._written(trial).attempts + 1
            state = State(
                status="running", attempts=attempts, started=time.time(), host=socket.gethostname(), pid=os.getpid()
            )
            self.write_state(trial, state)
            yield state

    @contextmanager
    def drive(self) -> Iterator[None]:
        """Hold the sweep: one command at a time hands out its trials.

        Raises:
            RunError: if another does.
        """
        with hold(self.path / DRIVER, f"sweep '{self.path}'", patience=CLAIM_SECONDS):
            with suppress(FileNotFoundError):
                (self.path / STOP).unlink()
            yield

    @property
    def is_driven(self) -> bool:
        """Whether a command is handing out trials now."""
        return is_held(self.path / DRIVER)

    def ask_to_stop(self, trial: Trial, status: Status, why: str) -> None:
        """Ask for the end of a trial, with a status and a reason; the process that runs it looks at every step."""
        write_whole(self.folder(trial) / STOP, json.dumps({"status": status, "reason": why}))

    def asked_to_stop(self, trial: Trial) -> tuple[Status, str] | None:
        """Return the status with which a trial is to end, and why; None if nobody asks."""
        try:
            asked = read_json(self.folder(trial) / STOP)
        except FileNotFoundError:
            return None
        return asked["status"], asked["reason"]

    def ask_all_to_stop(self) -> None:
        """Ask the driver, and workers that have lost theirs, to stop; the same command goes on from there."""
        write_whole(self.path / STOP, "")

    @property
    def all_asked_to_stop(self) -> bool:
        """Whether somebody has."""
        return (self.path / STOP).exists()

    def judged(self, trial: Trial) -> float:
        """Return the last step at which a rule for early stopping was asked about a trial; −∞ if it never was."""
        try:
            return float(read_text(self.folder(trial) / JUDGED))
        except (FileNotFoundError, ValueError):
            return -math.inf

    def note_judged(self, trial: Trial, step: int) -> None:
        """Record at which step a rule was asked last."""
        write_whole(self.folder(trial) / JUDGED, f"{step}\n")

    def pause_at(self, trial: Trial, checkpoint: int | None) -> None:
        """Let a trial pause once it has made a checkpoint; None: let it run to its end."""
        file = self.folder(trial) / PAUSE
        if checkpoint is None:
            file.unlink(missing_ok=True)
        else:
            write_whole(file, f"{checkpoint}\n")

    def pauses_at(self, trial: Trial) -> float:
        """Return the number of the checkpoint at which a trial pauses; ∞ if it does not."""
        try:
            return int(read_text(self.folder(trial) / PAUSE))
        except (FileNotFoundError, ValueError):
            return math.inf

    def newest_checkpoint(self, trial: Trial) -> int:
        """Return the number of a trial's newest whole checkpoint; 0 if there is none."""
        return max(self._checkpoints(trial), default=0)

    def level(self, trials: Sequence[Trial], prepare: Callable[[Trial], None]) -> None:
        """Take trials that are about to be trained as one back to the newest checkpoint that all of them have.

        A kill may come when only some have written a checkpoint. From different steps their calls would be stacked
        otherwise than before, and the last bits of the results would be others. If one was killed before its first
        checkpoint, those that have written only their first are set aside and prepared anew. Trials that have none in
        common otherwise stay as they are.
        """
        there = {trial: self._checkpoints(trial) for trial in trials}
        common = max(set.intersection(*there.values()), default=0)
        if common:
            for trial in trials:
                for number in there[trial]:
                    if number > common:
                        self._remove_checkpoint(trial, number)
        elif all(self._written(trial).attempts for trial in trials) and not all(there.values()):
            for trial in [trial for trial in trials if len(there[trial]) == 1]:
                self.set_aside(trial)
                prepare(trial)

    def _checkpoints(self, trial: Trial) -> set[int]:
        """Return the numbers of a trial's whole checkpoints."""
        folder = self.folder(trial) / "checkpoints" / "steps"
        return {int(each.name) for each in folder.glob("*") if each.name.isdigit()}

    def _remove_checkpoint(self, trial: Trial, number: int) -> None:
        """Rename it first, so that a kill leaves no part of one."""
        undone = self.folder(trial) / "undone"
        shutil.rmtree(undone, ignore_errors=True)
        (self.folder(trial) / "checkpoints" / "steps" / str(number)).rename(undone)
        shutil.rmtree(undone)

    def branch(self, parent: Trial, child: Trial, config: Config, checkpoint: int) -> None:
        """Let a trial begin with what another has come to: its weights, its optimiser, its records.

        It is done once; what a kill left of it is made again.

        Args:
            parent: whose state is copied.
            child: the trial that begins with it.
            config: the child's config.
            checkpoint: the checkpoint to begin with, which is to be the parent's newest.

        Raises:
            RunError: if the other has gone on from that checkpoint.
        """
        source, target = self.folder(parent), self.folder(child)
        if (target / ANCESTOR).exists():
            return
        if self.newest_checkpoint(parent) != checkpoint:
            raise RunError(
                f"trial {child.id} begins with checkpoint {checkpoint} of {parent.id}, whose newest is"
                f" {self.newest_checkpoint(parent)}: begin the sweep in another folder"
            )
        branch_folder(source, target, config)
        write_whole(target / ANCESTOR, json.dumps({"trial": parent.id, "checkpoint": checkpoint}) + "\n")

    def set_aside(self, trial: Trial) -> Path:
        """Move a folder that cannot be read out of the way; returns where to."""
        number = 1
        while (target := self.path / "set-aside" / f"{trial.id}-{number}").exists():
            number += 1
        target.parent.mkdir(exist_ok=True)
        self.folder(trial).rename(target)
        return target

    def curve(self, trial: Trial, metric: str) -> list[tuple[int, float]]:
        """Return the (step, value) pairs of a metric that a trial has written so far."""
        return [(line["step"], line[metric]) for line in self.metrics(trial) if metric in line]

    def metrics(self, trial: Trial) -> list[dict[str, Any]]:
        """Return what a trial has recorded of its RL phase; a line that is being written is left for later."""
        return figures(self.folder(trial) / "metrics.jsonl", "rl")

    def last_words(self, trial: Trial, lines: int = 10) -> list[str]:
        """Return the end of a trial's log."""
        try:
            text = (self.folder(trial) / LOG).read_text(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:]


def is_held(path: Path) -> bool:
    """Return whether a process holds a file's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
