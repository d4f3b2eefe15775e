"""Copies weights of one role to the devices of another."""

from __future__ import annotations

import time
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from dovetail.devices.mesh import Devices
from dovetail.devices.spanning import moved, put
from dovetail.protocols import Weights


@attrs.define(kw_only=True, eq=False)
class HandOver:
    """Copies the policy's weights to the devices of a role, with that role's sharding, or to host memory.

    The copies do not share memory with the trained parameters, which the next update reuses. Frozen parameters are
    copied only once, and shared if the devices are the same.

    Attributes:
        devices: the devices of the run.
        on_host: roles that take weights from host memory, since they compute elsewhere. The devices then hold no copy.
        size: bytes that have been copied since the last call of `timings`.
        seconds: the time for copying them.
    """

    devices: Devices
    on_host: tuple[str, ...] = ()
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
        """Return a copy of parameters where a role takes them from."""
        began = time.perf_counter()
        made = jax.block_until_ready(self._moved(state, role))
        self.seconds += time.perf_counter() - began
        self.size += sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        return made

    def _once(self, frozen: Any, role: str) -> Any:
        if role not in self.on_host and self.devices.of(role) is self.devices:
            return frozen
        if role not in self._frozen or self._frozen[role][0] is not frozen:
            self._frozen[role] = frozen, self._moved(frozen, role)
        return self._frozen[role][1]

    def _moved(self, state: Any, role: str) -> Any:
        if role in self.on_host:
            return moved(state, lambda axes, shape: None, copied_to_host)
        return moved(state, self.devices.of(role).place, copied)

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
        return put(np.asarray(value), to)
    if not to.device_set.isdisjoint(value.sharding.device_set):
        # between overlapping meshes JAX shares buffers despite may_alias=False, but not for equal shardings
        value = jax.device_put(value, value.sharding, may_alias=False)
    return jax.device_put(value, to)


def copied_to_host(value: jax.Array, sharding: Sharding | None = None) -> Any:
    """Return a copy of an array in host memory, made without a program on its devices; keys stay where they are.

    So nothing is gathered on a device, and no collective waits for another program's.
    """
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    found = np.asarray(value)
    return found if found.flags.owndata else found.copy()  # on CPUs it may be a view of memory that an update reuses
