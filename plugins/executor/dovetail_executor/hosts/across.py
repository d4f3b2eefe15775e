"""The trainer's end of the channels in a run with several processes.

The sampler's program runs only in process 0, with copies of the weights on that process's devices, or in its host
memory for an engine that computes elsewhere. So the engine does not take part in computations of all processes, and may
take any time. Its results are broadcast to the others. Only an engine that computes elsewhere runs ahead of the
trainer: the planner refuses `train.staleness` where trainer and sampler share several devices, and `Devices.open`
refuses a mesh of the sampler's own.
"""

from __future__ import annotations

from typing import Any

import attrs
import jax
import numpy as np
from jax.sharding import Sharding

from dovetail.devices import processes
from dovetail.devices.mesh import Devices
from dovetail.devices.spanning import moved
from dovetail.plan.roles import ROLLOUT
from dovetail.protocols import Weights
from dovetail.training import in_flight
from dovetail.training.channels import End, opening
from dovetail.training.drawing import Message
from dovetail.training.drawn import Extras
from dovetail.training.metrics import WAITED, Clock
from dovetail.training.order import InOrder, Task
from dovetail.training.setup import Setup
from dovetail_executor.hosts.own import own_copy, own_devices


@attrs.define(kw_only=True)
class Across(InOrder):
    """See `dovetail.training.channels.End`; all processes call everything here, in the same order.

    Attributes:
        curriculum: arrays with the shapes of the curriculum's state; the values are in process 0.
        forms: arrays with the shapes of the trained parameters, which take no memory.
        frozen: process 0's copy of the parameters that are not trained.
        on_host: whether copies are in host memory.
        own: the devices of this process.
        inner: process 0's end of the channels.
    """

    curriculum: dict[str, Any]
    forms: Any
    frozen: Any
    on_host: bool
    own: Devices
    inner: End | None

    @classmethod
    def open(
        cls, setup: Setup, extras: Extras, tasks: tuple[Task, ...], weights: Weights, version: int, cut: in_flight.Cut
    ) -> Across:
        """Open the sampler's program in process 0; see `InTurn.open`."""
        own, on_host = own_devices(setup.config.mesh), ROLLOUT in setup.hand_over.on_host
        trained, frozen = (own_copy(each, own.place, on_host=on_host) for each in weights)
        older = {number: own_copy(each, own.place, on_host=on_host) for number, each in cut.weights.items()}
        inner = None
        if processes.is_first():
            # what computes with these weights enters the mesh that they are on
            here = attrs.evolve(setup, devices=own, hand_over=attrs.evolve(setup.hand_over, devices=own))
            cut = attrs.evolve(cut, weights=older)
            with own.use():
                begin = opening(setup.config)
                inner = begin(here, extras, tasks, Weights(trained, frozen), version, cut)
        return cls(
            tasks=tasks,
            taken=cut.taken,
            curriculum=cut.cursor.curriculum,
            forms=moved(weights.trained, lambda axes, shape: None, _form),
            frozen=frozen,
            on_host=on_host,
            own=own,
            inner=inner,
        )

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
        trained = own_copy(weights.trained, self.own.place, on_host=self.on_host)
        if self.inner is not None:
            with self.own.use():
                self.inner.publish(Weights(trained, self.frozen), version, clock)

    def cut(self, version: int) -> in_flight.Cut:
        """Return the contents of a checkpoint: process 0 has the values and writes them, the others only the shapes."""
        found = None if self.inner is None else self.inner.cut(version)
        data = processes.told(lambda: found and found.data)
        return found or in_flight.restored(data or {}, in_flight.like(data or {}, self.forms), self.curriculum)

    def close(self) -> None:
        """End the sampler's program."""
        if self.inner is not None:
            with self.own.use():
                self.inner.close()


def _form(value: jax.Array, sharding: Sharding | None) -> np.ndarray:
    return np.broadcast_to(np.zeros((), value.dtype), value.shape)
