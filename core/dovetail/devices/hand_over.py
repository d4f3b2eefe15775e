"""Copies weights of one role to the devices of another."""

from __future__ import annotations

import time
from typing import Any

import attrs
import jax
import numpy as np
from jax.sharding import Sharding

from dovetail.devices.mesh import Devices
from dovetail.devices.spanning import moved
from dovetail.protocols import Weights


@attrs.define(kw_only=True, eq=False)
class HandOver:
    """Copies the policy's weights to the devices of a role, with that role's sharding.

    The copies do not share memory with the trained parameters, which the next update reuses. Frozen parameters are
    copied only once, and shared if the devices are the same.

    Attributes:
        devices: the devices of the run.
        size: bytes that have been copied since the last call of `timings`.
        seconds: the time for copying them.
    """

    devices: Devices
    size: int = 0
    seconds: float = 0.0
    _frozen: dict[str, tuple[Any, Any]] = attrs.field(factory=dict)
    """By role, the frozen parameters and their copies."""

    def __call__(self, weights: Weights, role: str) -> Weights:
        """Return the weights on the devices of a role."""
        return Weights(self.trained(weights.trained, role), self._once(weights.frozen, role))

    def lend(self, weights: Weights, role: str) -> Weights:
        """Return the weights themselves if a role has the policy's devices, and otherwise a copy."""
        return weights if self.devices.of(role) is self.devices else self(weights, role)

    def trained(self, state: Any, role: str) -> Any:
        """Return a copy of parameters on the devices of a role."""
        began, to = time.perf_counter(), self.devices.of(role)
        made = jax.block_until_ready(moved(state, to.place, copied))
        self.seconds += time.perf_counter() - began
        self.size += sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        return made

    def _once(self, frozen: Any, role: str) -> Any:
        if self.devices.of(role) is self.devices:
            return frozen
        if role not in self._frozen or self._frozen[role][0] is not frozen:
            self._frozen[role] = frozen, moved(frozen, self.devices.of(role).place, copied)
        return self._frozen[role][1]

    def timings(self) -> dict[str, float]:
        """Return the seconds of copying since the last call, and its speed; empty if nothing was copied."""
        size, seconds, self.size, self.seconds = self.size, self.seconds, 0, 0.0
        if not size:
            return {}
        return {"hand_over/seconds": seconds, "hand_over/gb_per_second": size / 1e9 / max(seconds, 1e-9)}


def copied(value: jax.Array, sharding: Sharding | None) -> jax.Array:
    """Return a copy of an array with this sharding; None keeps its own sharding.

    If the devices belong to another process, JAX cannot copy the array directly, and the copy goes through host memory.
    """
    to = sharding or value.sharding
    if not (to.is_fully_addressable and value.is_fully_addressable):
        return through_host(value, to)
    if not to.device_set.isdisjoint(value.sharding.device_set):
        # between overlapping meshes JAX shares buffers despite may_alias=False, but not for equal shardings
        value = jax.device_put(value, value.sharding, may_alias=False)
    return jax.device_put(value, to)


def through_host(value: jax.Array, sharding: Sharding) -> jax.Array:
    """Return an array with this sharding, created from a copy in host memory."""
    whole = np.asarray(value)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: whole[index])
