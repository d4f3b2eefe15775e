"""One run from Python: `dovetail.load`, `dovetail.train`, and `dovetail.open_run` with its records as columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import numpy as np

from dovetail.config import Config
from dovetail.config import load as read
from dovetail.config.located import begun_in
from dovetail.errors import RunError, listing, nearest
from dovetail.interruptions import interruptions
from dovetail.run.files import read_lines, read_record
from dovetail.shipped import find

Phase = Literal["sft", "rl"]
Settings = Mapping[str, Any] | Sequence[str]
"""Settings that override a config file: `{"train.lr": 1e-4}`, or strings as for `--set`, `["train.lr=1e-4"]`."""


def texts(settings: Settings) -> list[str]:
    """Return settings as strings in the form that `--set` takes.

    >>> texts({"train.policy_loss": "gspo", "train.lr": 1e-4}), texts(["train.lr=1e-4"])
    (["train.policy_loss='gspo'", 'train.lr=0.0001'], ['train.lr=1e-4'])
    >>> texts({"train.lr": np.float32(0.5), "task.records.path": [Path("one.jsonl")]})
    ['train.lr=0.5', "task.records.path=['one.jsonl']"]
    """
    if isinstance(settings, Mapping):
        return [f"{key}={_plain(value)!r}" for key, value in settings.items()]
    return list(settings)


def _plain(value: Any) -> Any:
    """Return what gin has for a path or a number of numpy or JAX, also in a list or tuple."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def load(config: str | Path, settings: Settings = ()) -> Config:
    """Read a config, check all of it and plan its step.

    Args:
        config: a gin file, or the name of a shipped config such as `quickstart`.
        settings: settings that override those of the file.

    Raises:
        ConfigError: with one line for each problem, each with its location.
        PlanError: if a chosen component reads a field that nothing provides.
    """
    return read(find(str(config)), texts(settings))


def train(config: Config | str | Path, folder: str | Path | None = None, settings: Settings = ()) -> RecordedRun:
    """Train to the end, resuming the run in the folder if there is one; return the records of the run.

    What it sets in the process (the handlers of signals, hooks for errors, JAX's cache of compiled programs, a level of
    logging) is as before when it returns.

    Args:
        config: a config that `dovetail.load` returned, or an argument for it: a gin file, or a shipped config's name.
        folder: the run folder; by default `run.folder` of the config, or else `runs/CONFIG-RUNID`.
        settings: as for `dovetail.load`; only for a config that is not loaded yet.

    Raises:
        ValueError: if there are settings and the config is already loaded.
        DovetailError: if the config is invalid or the run fails; checkpoints and records written so far are kept.
        KeyboardInterrupt: on Ctrl-C, after the update at hand, once the state is saved; so, too, on SIGTERM and SIGHUP.
    """
    if isinstance(config, Config):
        if settings:
            raise ValueError("the config is loaded already: give its settings to dovetail.load")
        loaded, name = config, "run"
    else:
        name = Path(config).stem
        with begun_in(None if folder is None else Path(folder)):
            loaded = load(config, settings)
        if loaded.run.folder and folder is None:  # a run that has begun there goes on with the files that it began with
            with begun_in(Path(loaded.run.folder)):
                loaded = load(config, settings)
    from dovetail.run.process import prepared

    with prepared(), interruptions():
        from dovetail.run.folder import default_folder
        from dovetail.training.loop import train as run

        where = Path(folder or loaded.run.folder or default_folder(loaded, name))
        run(loaded, where)
    return open_run(where)


@attrs.frozen
class RecordedRun:
    """A run's folder. Every call reads it again, so that the records of a run in progress are up to date."""

    folder: Path

    @property
    def id(self) -> str:
        """The run id."""
        return str(read_record(self.folder / "run.json", run_id=str)["run_id"])

    @property
    def config(self) -> Config:
        """The config with all defaults.

        Raises:
            ConfigError: if the installed plugins cannot read it any more, or if it names programs to run or servers to
                call, since it may come from a stranger; read a config that you trust with
                `dovetail.load(folder / "config.gin")`.
        """
        return read(self.folder / "config.gin", trusted=False)

    def metrics(self, phase: Phase | None = "rl") -> dict[str, np.ndarray]:
        """Return the metrics of every step, by column.

        `step` is int64, `phase` is text, and all others are float64. The value is NaN for steps without the metric; for
        example, most steps do not have an evaluation.

        Args:
            phase: the phase of training whose steps to return; None returns both, in the order of training.

        Raises:
            RunError: if the file cannot be read, or there is no such phase.
        """
        return numbers(by_step(self._lines("metrics.jsonl", phase)))

    def timings(self, phase: Phase | None = "rl") -> dict[str, np.ndarray]:
        """Return the wall-clock figures by column, like `metrics`; an evaluation has a row of its own."""
        return numbers(self._lines("timings.jsonl", phase))

    def samples(self, phase: Phase | None = "rl") -> dict[str, list[Any]]:
        """Return the recorded completions by column: `step`, `phase` and the recorded data; missing values are None.

        Raises:
            RunError: if the file cannot be read, or there is no such phase.
        """
        lines = self._lines("samples.jsonl", phase)
        return {name: [line.get(name) for line in lines] for name in _names(lines, ("phase", "step"))}

    def _lines(self, file: str, phase: Phase | None) -> list[dict[str, Any]]:
        if phase not in (*get_args(Phase), None):
            raise RunError(
                f"there is no phase {phase!r}; phases: 'sft', 'rl', None for both. Evaluations are the columns eval/..."
                f" of metrics('rl'), and by prompt the lines of '{self.folder / 'eval.jsonl'}'"
            )
        return read_lines(self.folder / file, phase)


def open_run(folder: str | Path) -> RecordedRun:
    """Open the folder of a finished or unfinished run to read its records.

    Args:
        folder: the folder written by `dovetail train` or `dovetail.train`, or the folder of a trial of a sweep.

    Raises:
        RunError: if it is not the folder of a run; the message names the runs beside it.
    """
    path = Path(folder)
    if not (path / "run.json").is_file():
        beside = [each.parent.name for each in path.parent.glob("*/run.json")] if path.parent.is_dir() else []
        raise RunError(
            f"'{path}' is not the folder of a run (no run.json).{nearest(path.name, beside)} There: {listing(beside)}"
        )
    return RecordedRun(path)


def numbers(lines: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return records as columns: `step` as int64, `phase` as text, all others as float64 with NaN for missing values.

    All records are searched for columns. Readers of JSON lines that take the columns from the first hundred records
    would lose those that begin in the second phase.

    >>> records = [{"phase": "rl", "step": 0, "loss": 1.0}, {"phase": "rl", "step": 1, "eval/accuracy": 0.5}]
    >>> numbers(records)["eval/accuracy"]
    array([nan, 0.5])
    """
    lines = list(lines)
    types = {"phase": np.str_, "step": np.int64}
    names = _names(lines, types)
    return {name: np.array([_known(line.get(name)) for line in lines], types.get(name, np.float64)) for name in names}


def by_step(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge the records of the same step, such as those of its update and its evaluation, into one.

    >>> by_step([{"phase": "rl", "step": 2, "loss": 0.7}, {"phase": "rl", "step": 2, "eval/accuracy": 0.5}])
    [{'phase': 'rl', 'step': 2, 'loss': 0.7, 'eval/accuracy': 0.5}]
    """
    rows: dict[Any, dict[str, Any]] = {}
    for line in lines:
        rows.setdefault((line["phase"], line["step"]), {}).update(line)
    return list(rows.values())


def _known(value: Any) -> Any:
    return float("nan") if value is None else value


def _names(lines: Iterable[Mapping[str, Any]], first: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *(name for line in lines for name in line)]))
