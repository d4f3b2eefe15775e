"""The device mesh: parameters are cut by the names of their axes, batches by rows."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import attrs
import jax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, Sharding

from dovetail.config.settings import Mesh
from dovetail.devices.host_memory import give_back_after_compiling
from dovetail.devices.presence import devices, warn_if_unseen
from dovetail.devices.spanning import own_shape, put
from dovetail.errors import ConfigError
from dovetail.protocols import Axes

CUT: Final = {"width": "fsdp", "vocab": "tp", "ffn": "tp", "heads": "tp", "kv_heads": "tp"}
"""Logical axis of a parameter -> mesh axis over which it is cut."""

ROWS: Final = "fsdp"
"""The mesh axis over which the rows of a batch are cut."""


@attrs.frozen
class Devices:
    """The devices of a run; one device needs no mesh, and nothing is ever moved."""

    mesh: jax.sharding.Mesh | AbstractMesh | None

    @classmethod
    def open(cls, settings: Mesh) -> Devices:
        """Make the mesh.

        Raises:
            ConfigError: if there are fewer devices.
            RunError: if JAX cannot start its platform.
        """
        wanted, there = settings.fsdp * settings.tp, devices()
        warn_if_unseen()
        give_back_after_compiling()
        if wanted > len(there):
            raise ConfigError(
                f"mesh.fsdp = {settings.fsdp} times mesh.tp = {settings.tp} needs {wanted} devices; there"
                f" {'is' if len(there) == 1 else 'are'} {len(there)} ({there[0].platform})"
            )
        if wanted < len(there) and jax.process_count() > 1:
            raise ConfigError(
                f"mesh.fsdp = {settings.fsdp} times mesh.tp = {settings.tp} uses {wanted} of the {len(there)} devices"
                f" of {jax.process_count()} processes, and a process without a part in the mesh has nothing to do: set"
                f" mesh.fsdp = {len(there) // settings.tp}, or start fewer processes"
            )
        if wanted == 1:
            return cls(None)
        # jax.make_mesh makes axes explicit by default, which with_sharding_constraint refuses.
        axes = (AxisType.Auto, AxisType.Auto)
        return cls(jax.make_mesh((settings.fsdp, settings.tp), ("fsdp", "tp"), axes, devices=there[:wanted]))

    @classmethod
    def own(cls, settings: Mesh) -> Devices:
        """Make a mesh of this process's devices alone, where the run has several."""
        axes = (AxisType.Auto, AxisType.Auto)
        shape = own_shape(settings.fsdp, settings.tp)
        return cls(jax.make_mesh(shape, ("fsdp", "tp"), axes, devices=jax.local_devices()))

    @classmethod
    def abstract(cls, settings: Mesh) -> Devices:
        """Return a mesh of devices that need not be there, for sizes."""
        axes = (AxisType.Auto, AxisType.Auto)
        return cls(AbstractMesh((settings.fsdp, settings.tp), ("fsdp", "tp"), axes))

    @property
    def parts(self) -> int:
        """Into how many parts the rows of a batch are cut."""
        return 1 if self.mesh is None else self.mesh.shape[ROWS]

    def bytes(self, tree: Any) -> int:
        """Return what each device holds of parameters, and of what has their shapes, such as an optimiser's state."""

        def held(variable: Any) -> int:
            is_variable = isinstance(variable, nnx.Variable)
            value = variable.get_value() if is_variable else variable
            sharding = self.place(variable.get_metadata().get("axes") if is_variable else None, value.shape)
            shape = value.shape if sharding is None else sharding.shard_shape(value.shape)
            return math.prod(shape) * value.dtype.itemsize

        return sum(map(held, jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, nnx.Variable))))

    def use(self) -> AbstractContextManager[Any]:
        """Return a context in which compiled functions see this mesh."""
        return jax.set_mesh(self.mesh) if isinstance(self.mesh, jax.sharding.Mesh) else nullcontext()

    def place(self, axes: Axes | None, shape: tuple[int, ...]) -> Sharding | None:
        """Return the sharding of a parameter; see `dovetail.protocols.Place`.

        A dimension that its mesh axis does not divide, or whose mesh axis is taken by an earlier dimension, is whole on
        every device.
        """
        if self.mesh is None:
            return None
        spec: list[str | None] = []
        for name, size in zip(axes or (), shape, strict=False):
            axis = CUT.get(name or "")
            spec.append(axis if axis and axis not in spec and size % self.mesh.shape[axis] == 0 else None)
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def spread(self, state: nnx.State) -> nnx.State:
        """Move each parameter of a state to its place."""
        if self.mesh is None:
            return state

        def move(variable: nnx.Variable[Any]) -> nnx.Variable[Any]:
            value = variable.get_value()
            return variable.replace(put(value, self.place(variable.get_metadata().get("axes"), value.shape)))

        return jax.tree.map(move, state, is_leaf=lambda x: isinstance(x, nnx.Variable))

    def rows(self, batch: Any) -> Any:
        """Put a batch on the devices, cut by rows where their number allows it."""
        if self.mesh is None:
            return jax.device_put(batch)
        whole, cut = (NamedSharding(self.mesh, PartitionSpec(*spec)) for spec in ((), (ROWS,)))

        def spread(array: Any) -> jax.Array:
            return put(array, cut if array.ndim and array.shape[0] % self.parts == 0 else whole)

        return jax.tree.map(spread, batch)


def keep_rows_cut(micros: Any) -> Any:
    """Keep the rows of [micro-batch, row, ...] arrays cut over the devices, inside a compiled function with a mesh."""
    if jax.sharding.get_abstract_mesh().empty:
        return micros
    spec = PartitionSpec(None, ROWS)
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, spec), micros)


def to_host(tree: Any) -> Any:
    """Move arrays to the host's memory, each with its cut."""
    return _to_memory(tree, "pinned_host")


def to_device(tree: Any) -> Any:
    """Move them back."""
    return _to_memory(tree, "device")


def _to_memory(tree: Any, kind: str) -> Any:
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(kind)), tree)
