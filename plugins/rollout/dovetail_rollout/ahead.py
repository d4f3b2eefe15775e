"""Sampling ahead: the sampler's program in a thread of its own, while the trainer updates.

The two programs still compute the same messages however fast they are; see `dovetail.training.channels`.

With `train.in_flight` the sampler's program does look for newer weights while it draws a batch, and then its messages
depend on how fast the trainer is. They are still at most k updates old, and evaluations still have the weights of v.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from typing import Final

import attrs

from dovetail import progress
from dovetail.devices.population import CURRENT
from dovetail.plan.roles import ROLLOUT
from dovetail.protocols import Weights
from dovetail.training.channels import InTurn
from dovetail.training.drawing import Drawing, Message
from dovetail.training.drawn import Extras
from dovetail.training.in_flight import Cut
from dovetail.training.metrics import WAITED, Clock
from dovetail.training.order import Task
from dovetail.training.setup import Setup

SAMPLER: Final = "sampler"

PATIENCE_SECONDS: Final = 5.0
"""Seconds that an ending run waits for the sampler's current task; a reward that takes longer is abandoned."""


@attrs.frozen
class Made:
    """A message, and the timings of its production by name."""

    message: Message
    timings: dict[str, float] = attrs.field(factory=dict)


@attrs.frozen
class Failed:
    """The last message of a program that failed."""

    error: BaseException


@attrs.define(kw_only=True)
class Ahead(InTurn):
    """The trainer's end if the sampler's program runs in its own thread, at most `train.staleness` batches ahead.

    It samples from copies of the weights, because an update reuses the memory of the weights that it replaces. All are
    made in the trainer's thread; those for an engine that computes elsewhere are in host memory, so that the sampler's
    thread has no program that spans the trainer's devices.
    `published` has the copies that may still be needed, by version, k + 1 at most. `used` has the versions that any
    task uses.
    """

    used: frozenset[int]
    published: dict[int, Weights] = attrs.field(factory=dict)
    _arrived: dict[int, Weights] = attrs.field(factory=dict)
    """The weights that the sampler's program has received and may still need, by version."""
    pending: deque[Made | Failed] = attrs.field(factory=deque)
    _given: queue.SimpleQueue[tuple[int, Weights] | None] = attrs.field(factory=queue.SimpleQueue)
    _made: queue.SimpleQueue[Made | Failed] = attrs.field(factory=queue.SimpleQueue)
    _stopped: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def open(
        cls, setup: Setup, extras: Extras, tasks: tuple[Task, ...], weights: Weights, version: int, cut: Cut
    ) -> Ahead:
        """Open the sampler's program with the oldest weights that it still needs, and start it; see `InTurn.open`."""
        published = {
            older: setup.hand_over(Weights(trained, weights.frozen), ROLLOUT) for older, trained in cut.weights.items()
        }
        published[version] = setup.hand_over(weights, ROLLOUT)
        oldest = min(published)
        drawing = Drawing.open(setup, extras, published[oldest], oldest, cut.cursor)
        opened = cls(
            drawing=drawing,
            tasks=tasks,
            taken=cut.taken,
            cursor=drawing.cursor(),
            used=frozenset(task.version for task in tasks),
            published=published,
            pending=deque(Made(message) for message in cut.messages),
        )
        return opened.start()

    def start(self) -> Ahead:
        """Start the thread with the first task after the pending messages."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, None)  # a population counts on one thread for each of its runs
        first = self.taken + len(self.pending)
        for version, weights in sorted(self.published.items()):
            self._given.put((version, weights))
        self._thread = threading.Thread(target=context.run, args=(self._draw, first), name=SAMPLER, daemon=True)
        self._thread.start()
        return self

    def take(self, clock: Clock) -> Message:
        """Return the next message, waiting for it if necessary.

        Raises:
            DovetailError: the error of the sampler's program, after all earlier messages have been taken.
        """
        self._receive()
        ready = len(self.pending)
        if not ready:
            progress.begin("waiting", "for the sampler")
            self._received(self._made.get())
        if isinstance(made := self.pending[0], Failed):
            raise made.error
        self.pending.popleft()
        self.taken += 1
        clock.mark(WAITED)
        clock.note({"queue": float(ready)} | made.timings)
        return made.message

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Give the sampler a copy of new weights."""
        if version in self.used:
            self.published[version] = self.drawing.setup.hand_over(weights, ROLLOUT)
            self._given.put((version, self.published[version]))
        clock.mark("sync")

    def cut(self, version: int) -> Cut:
        """Return the current contents for a checkpoint: messages in the channel, and older weights still needed."""
        self._receive()
        return Cut(
            taken=self.taken,
            cursor=self.cursor,
            messages=tuple(made.message for made in self.pending if isinstance(made, Made)),
            weights={older: weights.trained for older, weights in self.published.items() if older < version},
        )

    def close(self) -> None:
        """End the sampler's program, even in the middle of a task."""
        self._stopped.set()
        self._given.put(None)
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
        self.drawing.close()

    def _receive(self) -> None:
        """Receive the messages that have arrived."""
        while not self._made.empty():
            self._received(self._made.get())

    def _received(self, made: Made | Failed) -> None:
        self.pending.append(made)
        if isinstance(made, Failed):
            return
        self.cursor = getattr(made.message, "cursor", self.cursor)
        done = self.taken + len(self.pending)
        oldest = self.tasks[done].version if done < len(self.tasks) else len(self.tasks)
        for version in [version for version in self.published if version < oldest]:
            del self.published[version]

    def _draw(self, first: int) -> None:
        """Run the sampler's program, beginning with task number `first`."""
        with progress.of_program(SAMPLER), self.drawing.setup.sampler_devices.use():
            try:
                if self.drawing.setup.config.train.in_flight:
                    self.drawing.newer = self._newer
                for task in self.tasks[first:]:
                    clock = Clock(task.version if task.batch is None else task.batch + 1)
                    progress.begin("waiting", "for weights")
                    if not self._use(task, clock):
                        return
                    message = self.drawing.do(task, clock)
                    self._made.put(Made(message, clock.timings(0, of=SAMPLER)))
                progress.begin("done")
            except BaseException as error:
                self._made.put(Failed(error))

    def _use(self, task: Task, clock: Clock) -> bool:
        """Wait for the weights of a task and use them; return false if the program must end."""
        version, before = task.version, self.drawing.version
        if task.batch is not None and self.drawing.newer is not None:
            version = max(version, before)
        while version not in self._arrived and version != before and not self._stopped.is_set():
            self._arrive(self._given.get())
        if self._stopped.is_set():
            return False
        if version != before:
            clock.mark(WAITED)
            self.drawing.use(self._arrived[version], version)
        for older in [older for older in self._arrived if older < task.version]:
            del self._arrived[older]
        clock.mark(WAITED if version == before else "sync")
        return True

    def _newer(self) -> tuple[Weights, int] | None:
        """Return the newest weights that have arrived, if they are newer than those in use."""
        while not self._given.empty():
            self._arrive(self._given.get())
        newest = max(self._arrived, default=0)
        return (self._arrived[newest], newest) if newest > self.drawing.version else None

    def _arrive(self, given: tuple[int, Weights] | None) -> None:
        if given is not None:
            self._arrived[given[0]] = given[1]
