"""How far a command is: a bar on a terminal, and elsewhere a line from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from dovetail.progress import Doing, Watcher

Watch = Callable[[str, int, int], None]


@contextmanager
def progress() -> Iterator[Watch]:
    """Show on stderr how far the work in this context is; its parts tell the watcher (phase, done, of how many).

    What else is announced, such as loading and compiling, is shown too. Where nobody looks, what takes more than a few
    seconds writes lines into a log that would be silent for minutes.
    """
    from rich.console import Console

    from dovetail.progress import begin, so_far, watched_by

    phases = set[str]()

    def watch(phase: str, done: int, total: int) -> None:
        if phase not in phases:
            phases.add(phase)
            begin(phase, total=total)
        so_far(phase, done, total)

    console = Console(stderr=True)
    with _bars(console) if console.is_terminal else _lines() as shown, watched_by(shown):
        yield watch


@contextmanager
def _bars(console: Console) -> Iterator[Watcher]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


class _Bars:
    """A bar for each activity; one that is not counted moves to and fro until the next one begins."""

    def __init__(self, bars: Any) -> None:
        self.bars, self.tasks = bars, dict[str, Any]()

    def tell(self, doing: Doing) -> None:
        """Show the activity."""
        if doing.what not in self.tasks:
            for task in self.tasks.values():
                if self.bars.tasks[task].total is None:  # it has ended, and was not counted
                    self.bars.update(task, total=1, completed=1)
            self.tasks[doing.what] = self.bars.add_task(str(doing), total=doing.total)
        self.bars.update(self.tasks[doing.what], description=str(doing), completed=doing.done)


@contextmanager
def _lines() -> Iterator[Watcher]:
    from dovetail_sink.pulse import Pulse

    pulse = Pulse(settled=True).start()
    try:
        yield pulse
    finally:
        pulse.close()
