"""A run's folder for notebooks and scripts: what it recorded, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from dovetail.errors import RunError, listing, nearest
from dovetail.run.files import read_lines, read_record

if TYPE_CHECKING:
    import numpy as np

    from dovetail.config import Config

Phase = Literal["sft", "rl"]


@attrs.frozen
class RecordedRun:
    """A run's folder, which is read anew at every call, so that it shows a run that is being trained as it grows."""

    folder: Path

    @property
    def id(self) -> str:
        """The run id."""
        return str(read_record(self.folder / "run.json", run_id=str)["run_id"])

    @property
    def config(self) -> Config:
        """The config, every default spelt out.

        Raises:
            ConfigError: if the installed plugins cannot read it any more, or it names programs to run or servers to
                call, as a stranger's may; `dovetail.load(folder / "config.gin")` reads one that you trust.
        """
        from dovetail.config import load

        return load(self.folder / "config.gin", trusted=False)

    def metrics(self, phase: Phase | None = "rl") -> dict[str, np.ndarray]:
        """Return the metrics of every step, by column.

        `step` is int64, `phase` text, all others are float64. A step that has not recorded a metric, as most steps
        have no evaluation, has NaN there.

        Args:
            phase: the steps of which phase of training; None for both, in the order in which they were taken.

        Raises:
            RunError: if the file cannot be read.
        """
        return numbers(by_step(read_lines(self.folder / "metrics.jsonl", phase)))

    def timings(self, phase: Phase | None = "rl") -> dict[str, np.ndarray]:
        """Return the wall-clock figures by column, as `metrics` does; an evaluation has a row of its own."""
        return numbers(read_lines(self.folder / "timings.jsonl", phase))

    def samples(self, phase: Phase | None = "rl") -> dict[str, list[Any]]:
        """Return the recorded completions by column: `step`, `phase`, and what the run has kept; None where it has not.

        Raises:
            RunError: if the file cannot be read.
        """
        lines = read_lines(self.folder / "samples.jsonl", phase)
        return {name: [line.get(name) for line in lines] for name in _names(lines, ("phase", "step"))}


def open_run(folder: str | Path) -> RecordedRun:
    """Open the folder of a run, finished or not, for its numbers.

    Args:
        folder: where `dovetail train` or `dovetail.train` has put it; a trial's folder of a sweep is one too.

    Raises:
        RunError: if there is no run, naming those beside it.
    """
    path = Path(folder)
    if not (path / "run.json").is_file():
        beside = [each.parent.name for each in path.parent.glob("*/run.json")] if path.parent.is_dir() else []
        raise RunError(
            f"'{path}' is not the folder of a run (no run.json).{nearest(path.name, beside)} There: {listing(beside)}"
        )
    return RecordedRun(path)


def numbers(lines: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return records as columns: `step` as int64, `phase` as text, all others as float64 with NaN for what is missing.

    Every column has a value for every record, whichever record has it first: readers of JSON lines that take the
    columns from the first hundred would lose those that begin with the second phase.

    >>> records = [{"phase": "rl", "step": 0, "loss": 1.0}, {"phase": "rl", "step": 1, "eval/accuracy": 0.5}]
    >>> numbers(records)["eval/accuracy"]
    array([nan, 0.5])
    """
    import numpy as np

    lines = list(lines)
    types = {"phase": np.str_, "step": np.int64}
    names = _names(lines, types)
    return {name: np.array([_known(line.get(name)) for line in lines], types.get(name, np.float64)) for name in names}


def by_step(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make one record of what a step has recorded in several, as its update and its evaluation are.

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
