"""An A/B test as it goes: which runs have ended. How the arms compare is not shown; that is for the looks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.errors import RunError, listing, nearest
from dovetail_lab.ab.integrity import keep
from dovetail_lab.ab.registration import Registration
from dovetail_lab.sweep import State, Store, Trial, Watch
from dovetail_lab.sweep.progress import Display, Lines
from dovetail_lab.sweep.state import SETTLED

if TYPE_CHECKING:
    from rich.console import RenderableType

SIGNS = {"waiting": "·", "interrupted": "·", "done": "✓", "corrupt": "?"}
"""What stands for a status in the table; any other end is a cross."""


def open_watch(store: Store, registration: Registration) -> Watch:
    """Return the live table, or lines of text where stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    shown = Lines() if not sys.stdout.isatty() or console.is_dumb_terminal else Table(store, registration, console)
    return Checked(inner=shown, store=store, registration=registration)


@attrs.define(kw_only=True)
class Checked:
    """A watch that ends the test as soon as a finished run turns out to lack the primary metric."""

    inner: Watch
    store: Store
    registration: Registration
    _settled: int = 0
    _found: bool = False

    def say(self, text: str, log: Sequence[str] = ()) -> None:
        """Pass it on."""
        self.inner.say(text, log)

    def look(self, states: Mapping[Trial, State]) -> None:
        """Check the first run that is done, and keep in the journal what each that ends has come to.

        Raises:
            RunError: with the nearest name.
        """
        self.inner.look(states)
        settled = sum(state.status in SETTLED for state in states.values())
        if settled != self._settled:
            self._settled = settled
            keep(self.registration, self.store)
        done = next((trial for trial, state in states.items() if state.status == "done"), None)
        if self._found or done is None:
            return
        known = {name for line in self.store.metrics(done) for name in line} - {"phase", "step"}
        metric = self.registration.design.metric
        if metric not in known:
            raise RunError(
                f"run {done.id} is done and has no metric '{metric}'.{nearest(metric, known)} It has:"
                f" {listing(known)}. Say --metric NAME --amend 'WHY' to continue with another"
            )
        self._found = True

    def close(self) -> None:
        """Pass it on."""
        self.inner.close()


class Table(Display):
    """Arms by seeds on a terminal."""

    def __init__(self, store: Store, registration: Registration, console: Any) -> None:
        self._store, self._registration = store, registration
        super().__init__(console)

    def draw(self, states: Mapping[Trial, State]) -> RenderableType:
        """Return the table."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        by_id = {trial.id: (trial, state) for trial, state in states.items()}
        design = self._registration.design
        grid = Grid(box=None, pad_edge=False, header_style="dim")
        grid.add_column("seed", justify="right", style="bold")
        for seed in design.seeds:
            grid.add_column(str(seed), justify="right")
        for arm, ids in self._registration.trials.items():
            grid.add_row(arm, *(self._cell(arm, *by_id[id]) if id in by_id else "·" for id in ids.values()))
        over = sum(state.status in SETTLED for state in states.values())
        looks = ", ".join(map(str, design.look_sizes))
        return Group(
            Text(f"{over} of {len(states)} runs", style="bold"),
            grid,
            Text(f"the arms are compared after {looks} pairs, not before", style="dim"),
        )

    def _cell(self, arm: str, trial: Trial, state: State) -> str:
        if state.status == "running":
            lines = self._store.metrics(trial)
            return f"{(lines[-1]['step'] if lines else 0) / max(self._registration.steps[arm], 1):.0%}"
        return SIGNS.get(state.status, "✗")
