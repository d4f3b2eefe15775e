"""The trainer's end of the channels where nothing is sampled: messages come from the folder of a run that kept them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import RunError
from dovetail.protocols import Weights
from dovetail.run.blocks import blocks
from dovetail.run.journal import MESSAGES
from dovetail.train import in_flight
from dovetail.train.drawing import Cursor, Message
from dovetail.train.metrics import Clock
from dovetail.train.order import Task


def head(task: Task, message: Message) -> dict[str, Any]:
    """Return what stands before the arrays of a kept message."""
    return {"version": task.version, "batch": task.batch, **in_flight.values_of(message)}


@attrs.define(kw_only=True)
class Kept:
    """What a run has taken from its sampler, in the order in which it did; see `dovetail.train.ahead.InTurn`."""

    path: Path
    tasks: tuple[Task, ...]
    taken: int
    cursor: Cursor
    _blocks: Iterator[tuple[dict[str, Any], bytes]] = attrs.field(alias="blocks")

    @classmethod
    def open(cls, run: Path, order: tuple[Task, ...], taken: int, cursor: Cursor) -> Kept:
        """Open what the run in a folder has kept, behind the first `taken` messages.

        Raises:
            RunError: if it has kept nothing.
        """
        path = run / MESSAGES
        if not path.exists() or not path.stat().st_size:
            raise RunError(
                f"'{run}' has kept no messages ({MESSAGES}), so there is nothing to train on again; a run keeps them"
                " with run.keep_messages = True"
            )
        return cls(path=path, tasks=order, taken=taken, cursor=cursor, blocks=islice(blocks(path), taken, None))

    @property
    def next(self) -> Task | None:
        """The task whose message comes next; None behind the last one."""
        return self.tasks[self.taken] if self.taken < len(self.tasks) else None

    def take(self, clock: Clock) -> Message:
        """Return the next message.

        Raises:
            RunError: if it is not there, not whole, or another one.
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
        return in_flight.message_of(values, in_flight.arrays_from(values, body))

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Do nothing: what they would sample is there."""

    def cut(self, version: int) -> in_flight.Cut:
        """Return what a checkpoint holds."""
        return in_flight.Cut(taken=self.taken, cursor=self.cursor)

    def close(self) -> None:
        """Do nothing."""


def _said(task: Task) -> str:
    return f"the evaluation of weights {task.version}" if task.batch is None else f"the batch of step {task.batch + 1}"
