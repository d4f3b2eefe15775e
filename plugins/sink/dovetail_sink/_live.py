"""The live view of a run on a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs
from rich import box
from rich.console import Console as Terminal
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dovetail_sink._figures import ACCURACY, FIGURES, Figure, phase_of

if TYPE_CHECKING:
    from dovetail.progress import Doing

OTHER_LINES: Final = 8
"""Number of lines of the view that are not records, including the line below it."""

SPEED_PERIOD: Final = 3600.0
"""Seconds over which the time left is estimated; rich's own 30 may be less than one step."""

COLUMN_GAP: Final = 2
"""One space of padding and one of the table's frame."""

FRAME: Final = 2
"""The table's edges."""

STYLES: Final = {"sft": "cyan", "eval": "bold green", "rl": ""}


@attrs.define
class Status:
    """The current activity of each program of the run, its duration, and the run's; computed when it is drawn."""

    now: Callable[[], float] = time.monotonic
    began: float = attrs.field(init=False)
    doing: dict[str, tuple[Doing, float]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.began = self.now()

    def tell(self, doing: Doing) -> None:
        """Take what a program is doing."""
        before, since = self.doing.get(doing.program, (None, 0.0))
        if before is None or (before.what, before.compiling) != (doing.what, doing.compiling):
            since = self.now()
        self.doing = self.doing | {doing.program: (doing, since)}

    def __rich__(self) -> RenderableType:
        said = "; ".join(f"{doing}  {_minutes(self.now() - since)}" for doing, since in self.doing.values())
        line = f"{said}, of {_minutes(self.now() - self.began)} in all"
        return Text(line, style="dim", overflow="ellipsis", no_wrap=True)


def _minutes(seconds: float) -> str:
    """Write a time.

    >>> _minutes(75), _minutes(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LiveView:
    """The title, the current activity, a bar with the time left, evaluations, and a table of the latest records."""

    def __init__(self, terminal: Terminal, title: str, total_steps: int, start_step: int, rows: int) -> None:
        """Start drawing on `terminal`."""
        self._terminal = terminal
        self._title = title
        self._total_steps = total_steps
        self._step = 0
        self._records: deque[tuple[str, int, Mapping[str, float]]] = deque(maxlen=rows)
        self._seen: set[str] = set()
        self._evaluations: list[tuple[int, float]] = []
        self._status = Status()
        self._progress = _progress(terminal)
        self._bars = {
            "sft": self._progress.add_task("sft", total=None, visible=False, done=""),
            "rl": self._progress.add_task(
                "rl", start=False, total=total_steps, completed=start_step, done=f"{start_step}/{total_steps}"
            ),
        }
        self._live = Live(self._view(), console=terminal, refresh_per_second=4)
        self._live.start()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        phase = phase_of(metrics)
        if self._records and (self._records[-1][0] == "sft") != (phase == "sft"):
            self._records.clear()
            self._seen.clear()
        self._records.append((phase, step, metrics))
        self._seen |= metrics.keys()
        if ACCURACY in metrics:
            self._evaluations.append((step, metrics[ACCURACY]))
        if phase != "eval" or step >= self._step:  # with staleness, an evaluation is of weights a few steps old
            self._step = step
            self._advance(phase == "sft", step)
        self._live.update(self._view())

    def tell(self, doing: Doing) -> None:
        """Take what the run is doing."""
        first = not self._status.doing
        self._status.tell(doing)
        if first:
            self._live.update(self._view())

    def close(self) -> None:
        """Stop, leaving the last view on the terminal; a second call does nothing."""
        self._live.stop()

    def _advance(self, is_sft: bool, step: int) -> None:
        """Advance the bar of the phase; that of the warm start only pulses, since sinks do not know its length."""
        self._progress.update(self._bars["sft"], visible=is_sft, done=f"step {step}")
        self._progress.update(self._bars["rl"], visible=not is_sft)
        if not is_sft:
            self._progress.start_task(self._bars["rl"])
            self._progress.update(self._bars["rl"], completed=step, done=f"{step}/{self._total_steps}")

    def _view(self) -> RenderableType:
        lines: list[RenderableType] = [Text(self._title, style="bold", overflow="ellipsis", no_wrap=True)]
        if self._status.doing:
            lines.append(self._status)
        lines.append(self._progress)
        if self._evaluations:
            lines.append(Text(self._accuracy(), style=STYLES["eval"], overflow="ellipsis", no_wrap=True))
        if self._records:
            lines.append(self._table())
        return Group(*lines)

    def _accuracy(self) -> str:
        """The first, the best and the latest evaluation."""
        (first_step, first), (last_step, last) = self._evaluations[0], self._evaluations[-1]
        best_step, best = max(self._evaluations, key=lambda found: found[1])
        said = f"accuracy {last:.1%} at step {last_step}"
        if len(self._evaluations) == 1:
            return said
        return f"{said}, best {best:.1%} at step {best_step}, began with {first:.1%} at step {first_step}"

    def _table(self) -> Table:
        others = OTHER_LINES + bool(self._status.doing)
        shown = list(self._records)[-max(1, self._terminal.height - others) :]
        columns = [["step", *(str(step) for _, step, _ in shown)]]
        for figure in FIGURES:
            if figure.metric in self._seen:
                columns.append([figure.heading, *(_cell(figure, metrics) for _, _, metrics in shown)])
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="bold")
        columns = _fitting(columns, self._terminal.width)
        for heading, *_ in columns:
            table.add_column(heading, justify="right", no_wrap=True)
        for row, (phase, _, _) in enumerate(shown, start=1):
            table.add_row(*(column[row] for column in columns), style=STYLES[phase])
        return table


def _cell(figure: Figure, metrics: Mapping[str, float]) -> str:
    return f"{metrics[figure.metric]:{figure.format}}" if figure.metric in metrics else ""


def _fitting(columns: list[list[str]], width: int) -> list[list[str]]:
    """Drop columns from the right until the rest fits, because a truncated number would be misleading."""
    widths = [max(map(len, column)) + COLUMN_GAP for column in columns]
    while len(columns) > 1 and FRAME + sum(widths[: len(columns)]) > width:
        columns = columns[:-1]
    return columns


class _TimeLeftColumn(TimeRemainingColumn):
    """The time left, labelled as such; empty if the end is not known."""

    def render(self, task: Task) -> Text:
        """Return the cell of a bar."""
        left = super().render(task)
        return left.append(" left") if left.plain else left


def _progress(terminal: Terminal) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}[/] {task.fields[done]}"),
        BarColumn(),
        TimeElapsedColumn(),
        _TimeLeftColumn(),
        console=terminal,
        speed_estimate_period=SPEED_PERIOD,
    )
