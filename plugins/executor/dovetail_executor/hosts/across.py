"""The trainer's end of the channels in a run with several processes.

The sampler's program runs only in process 0, with copies of the weights on that process's devices. So the engine does
not take part in computations of all processes, and may take any time. Its results are broadcast to the others. It does
not run ahead of the trainer: the planner refuses `train.staleness` where trainer and sampler share several devices,
and `Devices.open` refuses a mesh of the sampler's own.
"""

from __future__ import annotations

from typing import Any

import attrs

from dovetail.devices import processes
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights
from dovetail.train import in_flight
from dovetail.train.channels import InTurn
from dovetail.train.drawing import Message
from dovetail.train.drawn import Extras
from dovetail.train.metrics import WAITED, Clock
from dovetail.train.order import InOrder, Task
from dovetail.train.setup import Setup
from dovetail_executor.hosts.own import own_copy, own_devices


@attrs.define(kw_only=True)
class Across(InOrder):
    """See `dovetail.train.channels.End`; all processes call everything here, in the same order.

    Attributes:
        memory: arrays with the shapes of the curriculum's state; the values are in process 0.
        frozen: process 0's copy of the parameters that are not trained.
        own: the devices of this process.
        inner: process 0's end of the channels.
    """

    memory: dict[str, Any]
    frozen: Any
    own: Devices
    inner: InTurn | None

    @classmethod
    def open(
        cls, setup: Setup, extras: Extras, tasks: tuple[Task, ...], weights: Weights, version: int, cut: in_flight.Cut
    ) -> Across:
        """Open the sampler's program in process 0; see `InTurn.open`."""
        own = own_devices(setup.config.mesh)
        trained, frozen = (own_copy(each, own.place) for each in weights)
        inner = None
        if processes.is_first():
            here = attrs.evolve(setup, devices=own)  # what computes with these weights enters the mesh that they are on
            with own.use():
                inner = InTurn.open(here, extras, tasks, Weights(trained, frozen), version, cut)
        return cls(tasks=tasks, taken=cut.taken, memory=cut.cursor.memory, frozen=frozen, own=own, inner=inner)

    def take(self, clock: Clock) -> Message:
        """Return the next message."""
        self.taken += 1
        mine = None
        if self.inner is not None:
            with self.own.use():
                mine = self.inner.take(clock)
        values = processes.told(lambda: mine and in_flight.values_of(mine))
        arrays = processes.told_arrays(lambda: {} if mine is None else in_flight.arrays_of(mine))
        clock.mark("telling" if mine else WAITED)
        assert values is not None, "process 0 has told its own"
        return mine or in_flight.message_of(values, arrays)

    def publish(self, weights: Weights, version: int, clock: Clock) -> None:
        """Give process 0's sampler new weights."""
        trained = own_copy(weights.trained, self.own.place)
        if self.inner is not None:
            with self.own.use():
                self.inner.publish(Weights(trained, self.frozen), version, clock)

    def cut(self, version: int) -> in_flight.Cut:
        """Return the contents of a checkpoint: process 0 has the values and writes them, the others only the shapes."""
        found = None if self.inner is None else self.inner.cut(version)
        data = processes.told(lambda: found and found.data)
        return found or in_flight.restored(data or {}, in_flight.like(data or {}, None), self.memory)

    def close(self) -> None:
        """End the sampler's program."""
        if self.inner is not None:
            with self.own.use():
                self.inner.close()
