"""The devices of one process of several, and copies of what spans all processes on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Sharding

from dovetail.config.settings import Mesh
from dovetail.devices.hand_over import copied_to_host
from dovetail.devices.mesh import AXES, KINDS, Devices
from dovetail.devices.processes import is_first
from dovetail.devices.spanning import everywhere, moved


def own_devices(settings: Mesh) -> Devices:
    """Return a mesh of this process's devices, in a shape as similar as possible to that of all devices."""
    here = jax.local_device_count()
    inner = math.gcd(settings.tp, here)
    return Devices(jax.make_mesh((here // inner, 1, inner), AXES, KINDS, devices=jax.local_devices()))


def own_copy(state: Any, place: Callable[..., Sharding | None], *, on_host: bool) -> Any:
    """Return a copy of a state on the devices of process 0, or in its host memory; all processes must call this.

    The other processes get None. One parameter at a time is briefly replicated on every device.
    """

    def bring(value: jax.Array, sharding: Sharding | None) -> Any:
        here = everywhere(value).addressable_data(0)
        if not is_first():
            return None
        return copied_to_host(here) if on_host else jax.device_put(here, sharding)

    found = moved(state, place, bring)
    return found if is_first() else None
