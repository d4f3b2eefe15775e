"""The device mesh: parameters are sharded by the names of their axes, batches by rows, and rows by tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, Sharding

from dovetail.config.settings import Mesh
from dovetail.devices.presence import devices
from dovetail.devices.spanning import moved, put
from dovetail.errors import ConfigError
from dovetail.protocols import Axes
from dovetail.registry import plugin_manager
from dovetail.registry.calls import tell

ROWS: Final = "fsdp"
"""The mesh axis over which the rows of a batch are sharded."""
TOKENS: Final = "cp"
"""The mesh axis over which the tokens of each row are sharded in forward and backward passes."""
EACH: Final = (ROWS, TOKENS)
"""The mesh axes over which a model's activations are sharded, which have one row per token."""

CUT: Final = {"width": EACH, "vocab": ("tp",), "ffn": ("tp",), "heads": ("tp",), "kv_heads": ("tp",)}
"""Logical axis of a parameter -> mesh axes over which it is sharded."""

AXES: Final = (*EACH, "tp")
KINDS: Final = (AxisType.Auto,) * len(AXES)
"""jax.make_mesh makes axes explicit by default, which with_sharding_constraint refuses."""

DIVISORS: Final = 12
"""The greatest number of suggested values in a message."""

NOBODY: Final[Mapping[str, Any]] = MappingProxyType({})


@attrs.frozen
class Devices:
    """The devices of the policy being trained. A single device does not need a mesh, and arrays are never moved.

    Attributes:
        mesh: the mesh of these devices.
        span: their indices.
        apart: by role, the devices of roles that have other devices. In that case all roles have a mesh, because arrays
            need an explicit placement.
    """

    mesh: jax.sharding.Mesh | AbstractMesh | None
    span: range = range(1)
    apart: Mapping[str, Devices] = NOBODY

    @classmethod
    def open(cls, settings: Mesh, apart: Mapping[str, Mesh] = NOBODY) -> Devices:
        """Create the meshes.

        Raises:
            ConfigError: if there are not enough devices.
            RunError: if JAX cannot start its platform.
        """
        there = devices()
        tell(plugin_manager(), "dovetail_devices", devices=there)
        _check_there(settings, "mesh", there)
        for role, each in apart.items():
            _check_there(each, f"{role}/mesh", there)
        _check_several(settings, there, apart)
        if settings.span == range(1) and not apart:
            return cls(None)

        def made(each: Mesh) -> jax.sharding.Mesh:
            return jax.make_mesh(each.shape, AXES, KINDS, devices=[there[number] for number in each.span])

        others = {role: cls(made(each), each.span) for role, each in apart.items()}
        return cls(made(settings), settings.span, others)

    @classmethod
    def abstract(cls, settings: Mesh, apart: Mapping[str, Mesh] = NOBODY) -> Devices:
        """Return abstract meshes for computing sizes; the devices need not exist."""
        others = {role: cls.abstract(each) for role, each in apart.items()}
        return cls(AbstractMesh(settings.shape, AXES, KINDS), settings.span, others)

    def of(self, role: str) -> Devices:
        """Return the devices of a role."""
        return self.apart.get(role, self)

    @property
    def first(self) -> Devices:
        """The first of these devices alone."""
        if not isinstance(self.mesh, jax.sharding.Mesh) or self.mesh.size == 1:
            return self
        chosen = self.mesh.devices.flatten()[:1].tolist()
        return Devices(jax.make_mesh((1, 1, 1), AXES, KINDS, devices=chosen), self.span[:1])

    @property
    def parts(self) -> int:
        """The number of parts into which the rows of a batch are divided."""
        return 1 if self.mesh is None else self.mesh.shape[ROWS]

    def bytes(self, tree: Any) -> int:
        """Return the bytes on each device of parameters or arrays with their shapes, such as an optimiser's state."""

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

        A dimension is not sharded if the size of its mesh axes does not divide it, or if an earlier dimension already
        uses them.
        """
        if self.mesh is None:
            return None
        spec: list[tuple[str, ...] | None] = []
        for name, size in zip(axes or (), shape, strict=False):
            over = CUT.get(name or "", ())
            ways = math.prod(self.mesh.shape[axis] for axis in over)
            spec.append(over if over and over not in spec and size % ways == 0 else None)
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def spread(self, state: nnx.State) -> nnx.State:
        """Move each parameter of a state to its place."""
        return state if self.mesh is None else moved(state, self.place, put)

    def whole(self, tree: Any) -> Any:
        """Replicate small arrays on all devices."""
        return tree if self.mesh is None else jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def rows(self, batch: Any) -> Any:
        """Put a batch on the devices, sharded by rows if their number allows it."""
        if self.mesh is None:
            return jax.device_put(batch)
        whole, cut = (NamedSharding(self.mesh, PartitionSpec(*spec)) for spec in ((), (ROWS,)))

        def spread(array: Any) -> jax.Array:
            return put(array, cut if array.ndim and array.shape[0] % self.parts == 0 else whole)

        return jax.tree.map(spread, batch)


def _check_there(settings: Mesh, name: str, there: Sequence[Any]) -> None:
    if settings.span.stop > len(there):
        begin = f" from {name}.first = {settings.first} on" if settings.first else ""
        raise ConfigError(
            f"{settings.product(name)} needs {len(settings.span)} device{'s' * (len(settings.span) > 1)}{begin};"
            f" there {'is' if len(there) == 1 else 'are'} {len(there)} ({there[0].platform})"
        )


def _check_several(settings: Mesh, there: Sequence[Any], apart: Mapping[str, Mesh]) -> None:
    """Refuse meshes that a run with several processes does not support."""
    if jax.process_count() == 1:
        return
    if apart:
        raise ConfigError(
            f"{min(apart)}/mesh gives a role devices of its own, which a run of {jax.process_count()} processes does"
            " not support: all roles share mesh.* there"
        )
    if len(settings.span) < len(there):
        raise ConfigError(
            f"{settings.product('mesh')} uses {len(settings.span)} of the {len(there)} devices of"
            f" {jax.process_count()} processes, and a process without a part in the mesh has nothing to do: set"
            f" mesh.fsdp = {len(there) // (settings.cp * settings.tp)}, or start fewer processes"
        )


def check_divides(settings: Mesh, name: str, vocabulary: int, heads: int | None = None) -> None:
    """Refuse a mesh that would split a model's heads, or could not shard its vocabulary.

    Raises:
        ConfigError: with the numbers that are possible.

    >>> try:
    ...     check_divides(Mesh(tp=3), "mesh", vocabulary=300, heads=4)
    ... except ConfigError as error:
    ...     print(error)
    mesh.tp = 3 does not divide 4 heads; values that divide a vocabulary of 300 and 4 heads: 1, 2, 4
    """
    counts = {f"a vocabulary of {vocabulary:,}": vocabulary} | ({f"{heads} heads": heads} if heads else {})
    if uneven := [what for what, count in counts.items() if count % settings.tp]:
        common = math.gcd(*counts.values())
        fitting = [str(number) for number in range(1, common + 1) if common % number == 0]
        raise ConfigError(
            f"{name}.tp = {settings.tp} does not divide {' and '.join(uneven)}; values that divide"
            f" {' and '.join(counts)}: {', '.join(fitting[:DIVISORS])}"
        )


def keep_rows_cut(micros: Any) -> Any:
    """Keep the rows of [micro-batch, row, ...] arrays sharded over the devices, in a compiled function with a mesh."""
    if jax.sharding.get_abstract_mesh().empty:
        return micros
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec(None, ROWS)), micros)


def rows_cut(array: jax.Array) -> jax.Array:
    """Keep the first axis of activations, tokens or rows of one, sharded over the devices that share a batch.

    Otherwise what a compiled function computes from a parameter that is sharded over its width would be sharded over
    the width too: every device would have all rows, and sums over the width would travel. Nothing changes if the
    devices do not divide the axis.
    """
    cut = parts_of(array.shape[0], *EACH) > 1
    return jax.lax.with_sharding_constraint(array, PartitionSpec(EACH)) if cut else array


def parts_of(count: int, *axes: str) -> int:
    """Return the number of parts into which these axes of the mesh cut so many rows or tokens, in a compiled function.

    It is 1 without a mesh, and if the devices do not divide the number.
    """
    mesh = jax.sharding.get_abstract_mesh()
    ways = 1 if mesh.empty else math.prod(mesh.shape[axis] for axis in axes)
    return 1 if count % ways else ways


def by_device(array: jax.Array, parts: int) -> jax.Array:
    """Return [device, position, ...]: the positions of [seq, token, ...] that each device has, one row after another.

    A device has the `parts`-th part of each of its rows; `parts` divides the number of tokens. In this order one row
    per position, [device x position, ...], is sharded over `EACH` as rows and tokens are, and nothing travels.
    """
    (seq, token), rows = array.shape[:2], parts_of(len(array), ROWS)
    cut = array.reshape(rows, seq // rows, parts, token // parts, *array.shape[2:])
    return cut.swapaxes(1, 2).reshape(rows * parts, -1, *array.shape[2:])


def by_row(array: jax.Array, seq: int, parts: int) -> jax.Array:
    """Undo `by_device`: return the [seq, token, ...] array of [device x position, ...]."""
    rows = parts_of(seq, ROWS)
    cut = array.reshape(rows, parts, seq // rows, -1, *array.shape[1:])
    return cut.swapaxes(1, 2).reshape(seq, -1, *array.shape[1:])


def to_host(tree: Any) -> Any:
    """Move arrays to host memory, keeping their sharding."""
    return _to_memory(tree, "pinned_host")


def to_device(tree: Any) -> Any:
    """Move arrays from host memory back to the devices."""
    return _to_memory(tree, "device")


def _to_memory(tree: Any, kind: str) -> Any:
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(kind)), tree)
