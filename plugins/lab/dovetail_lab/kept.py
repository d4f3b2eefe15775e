"""The trainer's end of the channels in a run without sampling, which reads the messages that another run has kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from dovetail.errors import RunError
from dovetail.protocols import Weights
from dovetail.run.blocks import blocks
from dovetail.run.journal import MESSAGES
from dovetail.training import in_flight
from dovetail.training.channels import Opening
from dovetail.training.drawing import Cursor, Message
from dovetail.training.metrics import Clock
from dovetail.training.order import InOrder, Task


@attrs.define(kw_only=True)
class Kept(InOrder):
    """The messages that a run has taken from its sampler, in the same order; see `dovetail.training.channels.End`."""

    path: Path
    cursor: Cursor
    _blocks: Iterator[tuple[dict[str, Any], bytes]] = attrs.field(alias="blocks")

    @classmethod
    def open(cls, run: Path, order: tuple[Task, ...], taken: int, cursor: Cursor) -> Kept:
        """Open the messages that the run in a folder has kept, after the first `taken` messages.

        Raises:
            RunError: if it has not kept any.
        """
        path = run / MESSAGES
        if not path.exists() or not path.stat().st_size:
            raise RunError(
                f"'{run}' has kept no messages ({MESSAGES}), so there is nothing to train on again; a run keeps them"
                " with run.keep_messages = True"
            )
        return cls(path=path, tasks=order, taken=taken, cursor=cursor, blocks=islice(blocks(path), taken, None))

    def take(self, clock: Clock) -> Message:
        """Return the next message.

        Raises:
            RunError: if the message is missing, incomplete, or belongs to another task.
        """
        task = self.tasks[self.taken]
        values, body = next(self._blocks, (None, b""))
        if values is None:
            raise RunError(
                f"'{self.path}' ends before {_said(task)}, and the run in that folder with it; the steps before have"
                " been trained again. Resume that run to have the others"
            )
        if (found := Task(values["version"], values["batch"])) != task:
            raise RunError(
                f"'{self.path}' has {_said(found)} where {_said(task)} should be: the run did not keep all messages;"
                " it must have run.keep_messages = True from its beginning"
            )
        self.taken += 1
        clock.mark("reading")
        return in_flight.message_of(values, arrays_from(values, body))

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Do nothing, because the samples already exist."""

    def cut(self, version: int) -> in_flight.Cut:
        """Return the contents of a checkpoint."""
        return in_flight.Cut(taken=self.taken, cursor=self.cursor)

    def close(self) -> None:
        """Do nothing."""


def kept_by(run: Path) -> Opening:
    """Return what opens the messages that the run in a folder has kept, in place of a sampler's program."""
    return lambda setup, extras, tasks, weights, version, cut: Kept.open(run, tasks, cut.taken, cut.cursor)


def _said(task: Task) -> str:
    return f"the evaluation of weights {task.version}" if task.batch is None else f"the batch of step {task.batch + 1}"


def arrays_from(values: Mapping[str, Any], body: bytes) -> in_flight.Arrays:
    """Return the arrays of a message from their bytes."""
    found, start = {}, 0
    for name, array in in_flight.empty_like(values).items():
        found[name] = np.frombuffer(body, array.dtype, array.size, start).reshape(array.shape)
        start += array.nbytes
    return found
