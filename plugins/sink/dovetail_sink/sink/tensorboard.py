"""Metrics as TensorBoard event files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.run.files import writing

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

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
    """An open TensorBoard sink.

    It writes in this thread: that of tensorboardX's own `SummaryWriter` cannot tell the run that the disk is full.
    """

    folder: Path
    _writers: dict[Path, EventsWriter] = attrs.field(factory=dict, init=False)
    _flushed: float = attrs.field(default=-float(FLUSH_SECONDS), init=False)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics.

        Raises:
            RunError: if they cannot be written.
        """
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        is_sft = any(name.startswith("sft/") for name in metrics)
        folder = self.folder / "sft" if is_sft else self.folder
        self._write(folder, [Event(summary=scalar(name, value)) for name, value in metrics.items()], step)

    def close(self) -> None:
        """Flush and close the files.

        Raises:
            RunError: if the rest cannot be written.
        """
        while self._writers:
            folder, writer = self._writers.popitem()
            with writing(folder):
                writer.close()

    def _write(self, folder: Path, events: Iterable[Any], step: int) -> None:
        with writing(folder):
            writer = self._writers.get(folder) or self._open(folder, step)
            for event in events:
                event.step, event.wall_time = step, time.time()
                writer.write_event(event)
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                writer.flush()
                self._flushed = time.monotonic()

    def _open(self, folder: Path, step: int) -> EventsWriter:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        folder.mkdir(parents=True, exist_ok=True)
        there = sum(1 for _ in folder.glob("events.out.tfevents.*"))
        writer = EventsWriter(str(folder / "events"), f".{os.getpid()}.{there}")
        self._writers[folder] = writer
        if there:
            start = SessionLog(status=SessionLog.START)
            writer.write_event(Event(step=step, wall_time=time.time(), session_log=start))
        return writer
