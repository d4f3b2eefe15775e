"""The progress of a run: a live view on a terminal, lines of text elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
from annotated_types import Ge

from dovetail_sink._figures import FIGURES, phase_of
from dovetail_sink.pulse import Pulse

if TYPE_CHECKING:
    from dovetail.progress import Doing
    from dovetail.protocols import Sink


@attrs.frozen(kw_only=True)
class Console:
    """A live table of the latest steps under a progress bar, or one line per record if stdout is not a terminal.

    In a notebook it is a row of a table for each step, a line for each evaluation, and between two of them at most one
    line with the current activity, after 30 s; `JUPYTER_COLUMNS` is the width.

    Elsewhere a line is `phase=rl step=3 total=100 reward=0.5 KL=0.001 ...`: fields separated by one space, without
    those that the record does not have. `NO_COLOR` is honoured. The current activity and its duration are shown above
    the table. Without a terminal they are printed to stderr, `[42 s] sampling 120 / 512 (12 s)`, for each new phase of
    the first step and later if nothing else has been printed for a while.

    Args:
        rows: the greatest number of records in the table; a terminal with few lines shows fewer.
    """

    rows: Annotated[int, Ge(1)] = 12

    def open(self, folder: Path, total_steps: int, start_step: int) -> Sink:
        """Return the live view or the lines."""
        from rich.console import Console as Terminal

        terminal = Terminal()
        if terminal.is_jupyter:
            from dovetail_sink._rows import Rows

            return Rows(total_steps, terminal.width, Pulse(quiet=True).start())
        if not sys.stdout.isatty() or terminal.is_dumb_terminal:
            return Lines(total_steps, Pulse().start())

        from dovetail_sink._live import LiveView

        return LiveView(terminal, title(folder), total_steps, start_step, self.rows)


def title(folder: Path) -> str:
    """Return the run folder, with the config id if its `run.json` has one."""
    identity = folder / "run.json"
    known = json.loads(identity.read_text()) if identity.exists() else {}
    return f"{folder}  config {known['config_id']}" if "config_id" in known else str(folder)


@attrs.frozen
class Lines:
    """One line of text per record, and lines with the current activity in between."""

    total_steps: int
    pulse: Pulse

    def tell(self, doing: Doing) -> None:
        """Take what the run is doing."""
        self.pulse.tell(doing)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one step's metrics."""
        phase = phase_of(metrics)
        fields: dict[str, object] = {"phase": phase, "step": step}
        if phase != "sft":
            fields["total"] = self.total_steps
        fields |= {each.heading: f"{metrics[each.metric]:.6g}" for each in FIGURES if each.metric in metrics}
        print(" ".join(f"{name}={value}" for name, value in fields.items()), flush=True)
        self.pulse.recorded(of_step=phase != "eval")

    def close(self) -> None:
        """Stop printing; all lines have already been flushed."""
        self.pulse.close()
