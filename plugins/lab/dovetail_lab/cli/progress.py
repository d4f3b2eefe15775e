"""How far a command is: a bar on a terminal, and elsewhere a line from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

Watch = Callable[[str, int, int], None]


@contextmanager
def progress() -> Iterator[Watch]:
    """Show on stderr how far the work in this context is; its parts tell the watcher (phase, done, of how many).

    Where nobody looks, what takes more than a few seconds writes lines into a log that would be silent for minutes.
    """
    from rich.console import Console

    console = Console(stderr=True)
    with _bars(console) if console.is_terminal else _lines() as watch:
        yield watch


@contextmanager
def _bars(console: Console) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def watch(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done)

        yield watch


@contextmanager
def _lines() -> Iterator[Watch]:
    from dovetail.progress import begin, so_far, watched_by
    from dovetail_sink.pulse import Pulse

    pulse, phases = Pulse(settled=True), set[str]()

    def watch(phase: str, done: int, total: int) -> None:
        if phase not in phases:
            phases.add(phase)
            begin(phase, total=total)
        so_far(phase, done, total)

    pulse.start()
    try:
        with watched_by(pulse):
            yield watch
    finally:
        pulse.close()
