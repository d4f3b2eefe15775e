"""A sweep as it goes: a live table over all trials on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import printable
from dovetail_lab.sweep.state import SETTLED, State
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.terms import Watch, count
from dovetail_lab.sweep.trial import Trial

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_TRIALS = 12


def open_watch(store: Store, metric: str, steps: Mapping[str, int]) -> Watch:
    """Return the live view, or lines of text off a terminal; `steps` is what each trial takes, by id."""
    from rich.console import Console

    console = Console()
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        return Lines()
    return Live(store, metric, steps, console)


class Lines:
    """One line for each thing that happens, and the end of the log of what fails."""

    def __init__(self) -> None:
        self._told = ""

    def say(self, text: str, log: Sequence[str] = ()) -> None:
        """Print it."""
        print(printable("\n".join([text, *(f"    {line}" for line in log)])), flush=True)

    def look(self, states: Mapping[Trial, State]) -> None:
        """Print how many trials there are of each status, when that changes."""
        now = count(state.status for state in states.values())
        if now != self._told:
            print(now, flush=True)
        self._told = now

    def close(self) -> None:
        """Do nothing: every line has been flushed."""


class Display:
    """A view of all trials that is drawn in place on a terminal; events scroll by above."""

    def __init__(self, console: Any) -> None:
        from rich.live import Live as InPlace

        self._console = console
        self._display = InPlace(console=console, refresh_per_second=4, transient=True)
        self._display.start()

    def draw(self, states: Mapping[Trial, State]) -> RenderableType:
        """Return the view."""
        raise NotImplementedError

    def say(self, text: str, log: Sequence[str] = ()) -> None:
        """Print it above the view."""
        self._console.print(printable(text), markup=False, highlight=False)
        for line in log:
            self._console.print(f"    {printable(line)}", style="dim", markup=False, highlight=False)

    def look(self, states: Mapping[Trial, State]) -> None:
        """Draw how things stand."""
        self._display.update(self.draw(states))

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._display.stop()


class Live(Display):
    """Progress over all trials, and each trial at hand with its step and metric."""

    def __init__(self, store: Store, metric: str, steps: Mapping[str, int], console: Any) -> None:
        self._store, self._metric, self._steps = store, metric, steps
        self._began = time.monotonic()
        super().__init__(console)

    def draw(self, states: Mapping[Trial, State]) -> RenderableType:
        """Return two bars, the counts, and a row for each running trial."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        over = sum(state.status in SETTLED for state in states.values())
        head = Text(f"{over} of {len(states)} trials", style="bold")
        head.append(f"   {count(state.status for state in states.values())}", style="not bold")
        head.append(f"   {_duration(time.monotonic() - self._began)}", style="dim")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("running", "", "step", self._metric):
            table.add_column(heading)
        running = [trial for trial, state in states.items() if state.status == "running"]
        for trial in running[:SHOWN_TRIALS]:
            step, value = latest(self._store, trial, self._metric)
            bar = ProgressBar(total=max(self._steps[trial.id], 1), completed=step, width=20)
            table.add_row(trial.label, bar, str(step), "" if value is None else f"{value:.4g}")
        if len(running) > SHOWN_TRIALS:
            table.add_row(f"and {len(running) - SHOWN_TRIALS} more")
        return Group(head, ProgressBar(total=max(len(states), 1), completed=over, width=60), table)


def latest(store: Store, trial: Trial, metric: str) -> tuple[int, float | None]:
    """Return the step at which a trial is, and the last value of a metric that it has recorded."""
    lines = store.metrics(trial)
    values = [line[metric] for line in lines if metric in line]
    return (lines[-1]["step"] if lines else 0), (values[-1] if values else None)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
