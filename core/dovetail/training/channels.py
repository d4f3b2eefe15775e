"""The two programs of reinforcement learning, and the channels between them.

```text
sampler:  for each version v:  take weights v; evaluate if due; draw batch v + k    (v = 0: also batches 0 ... k-1)
trainer:  for each step n:     take batch n; update; publish weights n + 1
```

Each program reads the messages of the other from a channel, waits if there are none yet, and never looks at a clock.
Such a Kahn process network (Kahn 1974) computes the same messages however fast its programs are. With k = 0 they take
turns in one thread. Where the sampler's program runs otherwise is a plugin's (`dovetail_channels`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from dovetail.config import Config
from dovetail.plan.roles import ROLLOUT
from dovetail.protocols import Weights
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_for, ask_one
from dovetail.training.drawing import Batch, Cursor, Drawing, Message
from dovetail.training.drawn import Extras
from dovetail.training.in_flight import Cut
from dovetail.training.metrics import Clock
from dovetail.training.order import InOrder, Task
from dovetail.training.setup import Setup


class End(Protocol):
    """The trainer's end of the channels."""

    @property
    def next(self) -> Task | None:
        """Return the task of the next message; None after the last one."""
        ...

    def take(self, clock: Clock) -> Message:
        """Return the next message.

        Raises:
            DovetailError: the error of the sampler's program, after all earlier messages have been taken.
        """
        ...

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Give the sampler new weights, whose memory the next update reuses."""
        ...

    def cut(self, version: int) -> Cut:
        """Return the part of these weights' checkpoint that belongs to the sampler's program and the channels."""
        ...

    def close(self) -> None:
        """End the sampler's program, even in the middle of a task."""
        ...


Opening = Callable[[Setup, Extras, tuple[Task, ...], Weights, int, Cut], End]
"""Opens the sampler's program and returns the trainer's end; see `InTurn.open`."""


@attrs.define(kw_only=True)
class InTurn(InOrder):
    """The trainer's end of the channels without running ahead: a task is done when its message is requested.

    Attributes:
        drawing: the sampler's program.
        cursor: the position from which the batch after the last received one continues.
    """

    drawing: Drawing
    cursor: Cursor

    @classmethod
    def open(
        cls, setup: Setup, extras: Extras, tasks: tuple[Task, ...], weights: Weights, version: int, cut: Cut
    ) -> InTurn:
        """Open the sampler's program.

        Args:
            setup: the run.
            extras: what is drawn beside the prompts.
            tasks: all tasks of the program in this run.
            weights: the newest weights of the policy.
            version: their number.
            cut: the state of the channels at the start of the run, or at the checkpoint that it resumes from.
        """
        drawing = Drawing.open(setup, extras, setup.hand_over.lend(weights, ROLLOUT), version, cut.cursor)
        return cls(drawing=drawing, tasks=tasks, taken=cut.taken, cursor=drawing.cursor())

    def take(self, clock: Clock) -> Message:
        """Return the next message.

        Raises:
            DovetailError: the error of the sampler's program.
        """
        message = self.drawing.do(self.tasks[self.taken], clock)
        if isinstance(message, Batch):
            self.cursor = message.cursor
        self.taken += 1
        return message

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Give the sampler new weights, or copies if it has its own devices."""
        self.drawing.use(self.drawing.setup.hand_over.lend(weights, ROLLOUT), version)
        clock.mark("sync")

    def cut(self, version: int) -> Cut:
        """Return the part of these weights' checkpoint that belongs to the sampler's program and the channels."""
        return Cut(taken=self.taken, cursor=self.cursor)

    def close(self) -> None:
        """End the sampler's program."""
        self.drawing.close()


def opening(config: Config, *, several: bool = False) -> Opening:
    """Return what opens the sampler's program of a run: a plugin's, or else that of programs that take turns.

    `several` asks for that of several processes; theirs in turn asks for that of the one which samples.
    """
    asked = {"config": config, "several": several}
    if config.train.staleness:
        return ask_for(plugin_manager(), "dovetail_channels", config, "train.staleness", **asked)
    return ask_one(plugin_manager(), "dovetail_channels", **asked) or InTurn.open
