"""Learning curves as a picture: reward and held-out accuracy by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from dovetail.errors import DataError
from dovetail.run.files import write_whole
from dovetail_lab.report.charts import Line, lines
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.picture import picture
from dovetail_sink._runs import METRICS, Points, Series, mean_of, read, running_mean

FILE: Final = "curve.svg"
REWARD, ACCURACY = 1, 2
"""Numbers of colours."""

WINDOW: Final = 0.05
"""Width of the reward's running mean, as a fraction of the steps."""


@attrs.frozen(kw_only=True)
class Curve:
    """Draws `curve.svg` in the run's folder when the run ends, from its `metrics.jsonl`."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> Picture:
        """Return the sink."""
        return Picture(folder)


@attrs.frozen
class Picture:
    """An open `curve` sink."""

    folder: Path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing: the picture is drawn from `metrics.jsonl`, which a resume keeps consistent."""

    def close(self) -> None:
        """Draw the picture if the run has reached reinforcement learning."""
        points = read(self.folder)
        if points.reward or points.accuracy:
            draw([self.folder], self.folder / FILE)


def draw(folders: Sequence[Path], path: Path, title: str | None = None) -> None:
    """Draw the learning curves of one run, or of several such as the seeds of a config, in one picture.

    The upper chart shows the mean reward of each step's completions with its running mean, and the lower one the
    accuracy on the held-out examples. Several runs have thin lines, and a bold line shows their mean at common steps.

    Args:
        folders: run folders.
        path: the SVG file.
        title: the title above the charts; None means the folders' names.

    Raises:
        DataError: if no folder holds a step of reinforcement learning.
        RunError: on a broken record.
    """
    runs = [points for points in map(read, folders) if points.reward or points.accuracy]
    if not runs:
        raise DataError(f"nothing to draw: no step of reinforcement learning in {METRICS} of {_names(folders)}")
    charts = [*_rewards([run.reward for run in runs if run.reward])]
    charts += _accuracies([run.accuracy for run in runs if run.accuracy])
    write_whole(path, picture((title or _title(folders)) + _warm_start(runs), charts))


def _rewards(runs: list[Series]) -> list[tuple[str, str]]:
    if not runs:
        return []
    window = 1 + 2 * round(WINDOW * max(map(len, runs)) / 2)
    smooth = [running_mean(run, window) for run in runs]
    over = [f"running mean over {window} steps"] if window > 1 else []
    if len(runs) == 1:
        said, curves = [f"bold: {each}" for each in over], [_line(smooth[0], REWARD, *over or ["each step"])]
        curves = [_line(runs[0], REWARD, "each step", thin=True) for _ in over] + curves
    else:
        said, curves = [", ".join([_several(runs), *over])], _with_mean(smooth, REWARD)
    return [("; ".join(["reward (mean score)", *said]), _chart(curves, Unit(), "reward by step"))]


def _accuracies(runs: list[Series]) -> list[tuple[str, str]]:
    if not runs:
        return []
    mean, unit = mean_of(runs), Unit(percent=True)
    curves = _with_mean(runs, ACCURACY) if len(runs) > 1 else [_line(runs[0], ACCURACY, "accuracy")]
    ends = [unit.value(mean[step]) for step in ((min(mean), max(mean)) if len(mean) > 1 else ())]
    said = ": ".join(["held-out accuracy", *([" to ".join(ends)] if ends else [])])
    said += f"; {_several(runs)}" if len(runs) > 1 else ""
    return [(said, _chart(curves, unit, "held-out accuracy by step"))]


def _with_mean(runs: list[Series], color: int) -> list[Line]:
    thin = [_line(run, color, f"run {number}", thin=True) for number, run in enumerate(runs, 1)]
    return [*thin, _line(mean_of(runs), color, _mean(runs))]


def _line(series: Series, color: int, label: str, *, thin: bool = False) -> Line:
    return Line(label=label, color=color, points=sorted(series.items()), thin=thin)


def _chart(curves: Sequence[Line], unit: Unit, label: str) -> str:
    return lines(curves, unit=unit, label=label, x_label="step of reinforcement learning")


def _several(runs: Sequence[Series]) -> str:
    return f"thin: each run, bold: {_mean(runs)}"


def _mean(runs: Sequence[Series]) -> str:
    return f"mean of {len(runs)} runs"


def _warm_start(runs: Sequence[Points]) -> str:
    steps = sorted({run.sft_steps for run in runs})
    return "" if steps == [0] else f", after a warm start of {' or '.join(map(str, steps))} steps"


def _title(folders: Sequence[Path]) -> str:
    names = [folder.resolve().name for folder in folders]
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more"


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
