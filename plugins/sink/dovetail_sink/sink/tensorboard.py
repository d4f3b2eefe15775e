"""Metrics as TensorBoard event files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

FLUSH_SECONDS = 10


@attrs.frozen(kw_only=True)
class TensorBoard:
    """Event files in the run's folder: `tensorboard --logdir RUN/events`. Needs no TensorFlow.

    The warm start has its own steps and therefore its own folder, `events/sft`, which TensorBoard shows as another run.
    After a resume, TensorBoard hides earlier events from the first repeated step on, so that events written after the
    checkpoint do not show twice.
    """

    def open(self, folder: Path, total_steps: int, start_step: int) -> EventFiles:
        """Return the sink; files are created at the first step of each phase."""
        return EventFiles(folder / "events")


@attrs.define
class EventFiles:
    """An open TensorBoard sink."""

    folder: Path
    _writers: dict[Path, SummaryWriter] = attrs.field(factory=dict, init=False)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        is_sft = any(name.startswith("sft/") for name in metrics)
        writer = self._writer(self.folder / "sft" if is_sft else self.folder, step)
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, folder: Path, step: int) -> SummaryWriter:
        from tensorboardX import SummaryWriter

        if folder not in self._writers:
            purge_step = step if any(folder.glob("events.out.tfevents.*")) else None
            self._writers[folder] = SummaryWriter(str(folder), purge_step=purge_step, flush_secs=FLUSH_SECONDS)
        return self._writers[folder]
