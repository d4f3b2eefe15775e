"""Learning curves as a picture: reward and held-out accuracy against the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from dovetail.errors import DataError
from dovetail_sink._runs import METRICS, Points, Series, mean_of, read, running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREY: Final = "#4D4D4D"
"""Colours of Okabe and Ito's palette, which colour-blind readers can tell apart."""

WINDOW: Final = 0.05
"""Width of the running mean of the reward, as a share of the steps."""

WARM_START: Final = 0.05
"""Width of the band that stands for the warm start, as a share of the steps: its own steps are of another kind."""

STYLE: Final[Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 150,
    "font.size": 10,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "dovetail",  # the same run gives the same bytes
    "xtick.color": GREY,
    "ytick.color": GREY,
}


@attrs.frozen(kw_only=True)
class Curve:
    """Draws `curve.png` and `curve.svg` in the run's folder when the run ends, from its `metrics.jsonl`."""

    def open(self, folder: Path, total_steps: int, start_step: int) -> Picture:
        """Return the sink."""
        return Picture(folder)


@attrs.frozen
class Picture:
    """An open `curve` sink."""

    folder: Path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing: the picture is drawn from the run's own record, which a resume puts in order."""

    def close(self) -> None:
        """Draw the picture, if the run has got as far as reinforcement learning."""
        points = read(self.folder)
        if points.reward or points.accuracy:
            for name in ("curve.png", "curve.svg"):
                draw([self.folder], self.folder / name)


def draw(folders: Sequence[Path], path: Path, title: str | None = None) -> None:
    """Draw the learning curves of one run, or of several in one picture, such as the seeds of a config.

    Above is the mean reward of a step's completions, with its running mean; below, the accuracy on the held-out
    examples. Of several runs, each has a thin line, and their mean, at the steps that all of them have, a bold one. A
    band left of step 0 stands for the warm start.

    Args:
        folders: run folders.
        path: the picture; its suffix (.png, .svg, .pdf) says the format.
        title: what stands above it; None: the folders' names.

    Raises:
        DataError: if no folder holds a step of reinforcement learning; on a broken record.
    """
    import matplotlib as mpl

    runs = [points for points in map(read, folders) if points.reward or points.accuracy]
    if not runs:
        raise DataError(f"nothing to draw: no step of reinforcement learning in {METRICS} of {_names(folders)}")
    with mpl.rc_context(STYLE):
        figure = _figure(runs, title or _title(folders))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _figure(runs: Sequence[Points], title: str) -> Figure:
    from matplotlib.figure import Figure

    rewards = [run.reward for run in runs if run.reward]
    accuracies = [run.accuracy for run in runs if run.accuracy]
    panels = bool(rewards) + bool(accuracies)
    figure = Figure(figsize=(7.2, 1.0 + 2.4 * panels), layout="constrained")
    axes = list(figure.subplots(panels, sharex=True, squeeze=False)[:, 0])
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    if rewards:
        _draw_rewards(axes[0], rewards)
    if accuracies:
        _draw_accuracies(axes[-1], accuracies)
    _mark_warm_start(axes, runs)
    axes[-1].set_xlabel("reinforcement learning step (updates of the policy)")
    return figure


def _draw_rewards(axes: Axes, runs: Sequence[Series]) -> None:
    window = 1 + 2 * round(WINDOW * max(map(len, runs)) / 2)
    smooth = [running_mean(run, window) for run in runs]
    over = f"running mean over {window} steps"
    if len(runs) == 1:
        axes.plot(*_xy(runs[0]), color=BLUE, alpha=0.3, linewidth=0.8, label="mean of a step's completions")
        axes.plot(*_xy(smooth[0]), color=BLUE, linewidth=2, label=over)
    else:
        _draw_several(axes, smooth, BLUE, f"each run, {over}")
    axes.set_ylabel("reward (mean score)")
    axes.legend(loc="lower right", fontsize=8)


def _draw_accuracies(axes: Axes, runs: Sequence[Series]) -> None:
    from matplotlib.ticker import PercentFormatter

    if len(runs) == 1:
        axes.plot(*_xy(runs[0]), color=VERMILION, linewidth=2, marker="o", markersize=4)
    else:
        _draw_several(axes, runs, VERMILION, "each run", marker="o")
        axes.legend(loc="lower right", fontsize=8)
    steps, values = _xy(mean_of(list(runs)))
    for end, offset in ((0, (6, -11)), (-1, (-6, 8))) if len(steps) > 1 else ():
        axes.annotate(
            f"{values[end]:.1%}",
            (steps[end], values[end]),
            xytext=offset,
            textcoords="offset points",
            ha="right" if end else "left",
            fontsize=8,
        )
    axes.set_ylabel("held-out accuracy (%)")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylim(0, 1.15 * max(max(run.values()) for run in runs) or 1)


def _draw_several(axes: Axes, runs: Sequence[Series], color: str, label: str, marker: str | None = None) -> None:
    for number, run in enumerate(runs):
        axes.plot(*_xy(run), color=color, alpha=0.35, linewidth=1, label="" if number else label)
    axes.plot(
        *_xy(mean_of(list(runs))),
        color=color,
        linewidth=2.2,
        markersize=4,
        label=f"mean of {len(runs)} runs",
        marker=marker,
    )


def _mark_warm_start(panels: Sequence[Axes], runs: Sequence[Points]) -> None:
    steps = {run.sft_steps for run in runs}
    last = max(step for run in runs for step in (*run.reward, *run.accuracy))
    if steps == {0}:
        return
    width = WARM_START * max(last, 1)
    for axes in panels:
        axes.axvspan(-width, 0, color=GREY, alpha=0.12, linewidth=0)
    panels[0].text(
        -width / 2,
        0.5,
        f"warm start: {' or '.join(map(str, sorted(steps)))} steps",
        transform=panels[0].get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="center",
        fontsize=7,
        color=GREY,
    )


def _xy(series: Series) -> tuple[list[int], list[float]]:
    steps = sorted(series)
    return steps, [series[step] for step in steps]


def _title(folders: Sequence[Path]) -> str:
    names = [folder.resolve().name for folder in folders]
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more"


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
