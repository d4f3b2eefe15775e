"""Arrays that span the devices of several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from dovetail.devices.processes import several


def moved(state: Any, place: Callable[..., Sharding | None], move: Callable[[Any, Sharding | None], Any]) -> Any:
    """Return a state in which `move(array, sharding)` replaces the array of each parameter.

    `place` returns the sharding, given the parameter's logical axes and shape; see `dovetail.protocols.Place`.
    """

    def at_its_place(variable: nnx.Variable[Any]) -> nnx.Variable[Any]:
        value = variable.get_value()
        return variable.replace(move(value, place(variable.get_metadata().get("axes"), value.shape)))

    return jax.tree.map(at_its_place, state, is_leaf=lambda x: isinstance(x, nnx.Variable))


def put(array: Any, sharding: Sharding | None) -> jax.Array:
    """Put an array on devices of all processes, each of which has the same array.

    `jax.device_put` would first compare the values of all processes, which costs communication.
    """
    spans = isinstance(array, jax.Array) and not array.is_fully_addressable
    if sharding is None or sharding.is_fully_addressable or spans:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def shared(tree: Any, mesh: Any) -> Any:
    """Turn equal arrays of the individual processes into arrays that span all processes, as orbax requires."""
    if not several():
        return tree
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(
        lambda x: put(x, everywhere) if isinstance(x, jax.Array) and x.is_fully_addressable else x, tree
    )


def whole(tree: Any) -> Any:
    """Return arrays as host arrays with all of their values; all processes must call this."""

    def fetch(array: Any) -> np.ndarray:
        spans = isinstance(array, jax.Array) and not array.is_fully_addressable
        return np.asarray(everywhere(array).addressable_data(0) if spans else array)

    return jax.tree.map(fetch, tree)


def everywhere(array: jax.Array) -> jax.Array:
    """Return an array of all processes with all of its values on each device; all processes must call this."""
    sharding = array.sharding
    if sharding.is_fully_replicated:
        return array
    assert isinstance(sharding, NamedSharding), "what spans processes is cut by the mesh"
    # One at a time: with dozens of collectives under way, CPU processes with several devices have waited for each
    # other forever, because threads that wait for another process leave none for the device that it waits for.
    return jax.block_until_ready(jax.jit(_same, out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))(array))


def _same(array: jax.Array) -> jax.Array:
    return array
