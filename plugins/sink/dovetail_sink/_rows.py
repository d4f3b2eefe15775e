"""The progress of a run in a notebook: a row of a table for each record, which is printed as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from dovetail_sink._figures import ACCURACY, FIGURES, Figure, phase_of
from dovetail_sink.pulse import Pulse

if TYPE_CHECKING:
    from dovetail.progress import Doing

CELL: Final = 8
"""The characters of a cell, so that columns stay below their headings; a heading may have more."""


@attrs.define(eq=False)
class Rows:
    """A row for each step, with headings where the columns change, and a line for each evaluation."""

    total_steps: int
    width: int
    pulse: Pulse
    _phase: str = ""
    _columns: tuple[Figure, ...] = ()

    def tell(self, doing: Doing) -> None:
        """Take what the run is doing."""
        self.pulse.tell(doing)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one step's metrics."""
        phase = phase_of(metrics)
        if phase == "eval":
            print(f"evaluation at step {step}: accuracy {metrics[ACCURACY]:.1%}", flush=True)
        else:
            self._row(phase, step, metrics)
        self.pulse.recorded(of_step=phase != "eval")

    def close(self) -> None:
        """Stop printing."""
        self.pulse.close()

    def _row(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        here = f"{phase} {step}" if phase == "sft" else f"{phase} {step}/{self.total_steps}"
        first = len(f"rl {self.total_steps}/{self.total_steps}")
        known = self._columns if phase == self._phase else ()
        shown = tuple(each for each in FIGURES if each.metric in metrics or each in known)
        if (phase, shown) != (self._phase, self._columns):
            self._phase, self._columns = phase, shown
            self._print("step".ljust(first), [each.heading for each in shown])
        cells = [f"{metrics[each.metric]:{each.format}}" if each.metric in metrics else "" for each in shown]
        self._print(here.ljust(first), cells)

    def _print(self, first: str, cells: list[str]) -> None:
        """Print the cells that fit into the width."""
        line = first
        for text, column in zip(cells, self._columns, strict=True):
            cell = text.rjust(max(len(column.heading), CELL))
            if len(line) + 1 + len(cell) > self.width:
                break
            line += f" {cell}"
        print(line.rstrip(), flush=True)
