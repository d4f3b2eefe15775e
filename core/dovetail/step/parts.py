"""A chosen component with its hyperparameters: static ones are bound, floats are passed in at every call."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float

from dovetail.devices.compiled import NUMBERS
from dovetail.registry import Component

Floats = dict[str, Any]
"""A role's traced hyperparameters: float32 scalars, on the host or in a trace."""
Fields = Mapping[str, Any]

KEY = "key"
"""The field with a random key; each component that reads it gets a different key."""


@struct.dataclass
class Peak:
    """A partial maximum of a metric whose values are not negative."""

    value: Array


Sums = dict[str, tuple[Array, Array] | Peak]
"""Partial metrics: name -> (sum, count) of a mean, or a maximum; `merge` combines those of micro-batches."""


@attrs.frozen(kw_only=True)
class Part:
    """One component in its role.

    Attributes:
        role: the key of its floats in `hyper`.
        label: the name under which its metrics are logged.
        component: the component to call.
        statics: hyperparameters that are compile-time constants.
        floats: hyperparameters that are traced, so that trials that differ only in them share one executable.
        renames: fields to pass instead of those that it reads, such as `old_logps` for `logps` if KL is a reward.
        writes: the fields that its result becomes.
    """

    role: str
    label: str
    component: Component
    statics: dict[str, Any]
    floats: Mapping[str, float] = attrs.field(metadata=NUMBERS)
    renames: Mapping[str, str] = attrs.field(factory=dict)
    writes: tuple[str, ...] = ()

    def build(self, floats: Mapping[str, Any] | None = None) -> Any:
        """Return the function with its hyperparameters bound, or an instance of the class."""
        return self.component.bind(**self.statics, **(self.floats if floats is None else floats))

    def __call__(self, fields: Fields, hyper: Mapping[str, Floats]) -> tuple[Any, dict[str, Array]]:
        """Call the component on the fields that it reads; return its value and its metrics, which may be empty.

        Raises:
            PluginError: if it raises an error; the message names its owner and its own line.
        """
        arguments = self._arguments(fields)
        with self.component.named():  # tracebacks through JAX do not name the author's file
            value, metrics = split_metrics(self.build(hyper.get(self.role, {}))(*arguments))
        if value is None:
            raise self.component.wrong("returned None; a function without `return` does")
        return value, metrics

    def first_state(self, given: Any) -> Any:
        """Return the state with which a component begins: the result of its `init`."""
        with self.component.named("init"):
            return self.build().init(given)

    def next_state(self, fields: Fields, hyper: Mapping[str, Floats]) -> Any:
        """Return the next state of a component that reads `state`: the result of its `update` on the same fields."""
        arguments = dict(zip(self.component.reads, self._arguments(fields), strict=True))
        with self.component.named("update"):
            after = self.build(hyper.get(self.role, {})).update(**arguments)
        return same_form(self.component, fields["state"], after, "update")

    def _arguments(self, fields: Fields) -> list[Any]:
        return [self._argument(fields, self.renames.get(name, name)) for name in self.component.reads]

    def _argument(self, fields: Fields, name: str) -> Any:
        if name != KEY:
            return fields[name]
        # components with the same key would draw the same numbers, so a loss mask the same tokens as a field that ranks
        return jax.random.fold_in(fields[KEY], zlib.crc32(self.component.qualified_name.encode()))

    def sums(self, metrics: Mapping[str, Any], mask: Bool[Array, "seq token"], label: str = "") -> Sums:
        """Reduce its metrics; see `sums`.

        Raises:
            PluginError: for a metric that is neither a number nor one for each completion or token.
        """
        with self.component.named():
            shapes = {name: jnp.shape(value) for name, value in metrics.items()}
        for name, shape in shapes.items():
            if shape not in ((), mask.shape[:1], mask.shape):
                how = f"gives its metric '{name}' the shape {shape}; return one number, one for each completion,"
                raise self.component.wrong(f"{how} {mask.shape[:1]}, or one for each token, {mask.shape}")
        return sums(label or self.label, metrics, mask)

    def named(self, value: Any) -> dict[str, Any]:
        """Return the values of a result by the names of the fields that they become.

        Raises:
            PluginError: if there are more values than fields.
        """
        values = value if isinstance(value, tuple) else (value,)
        if len(values) > len(self.writes):
            writes = ", ".join(self.writes)
            raise self.component.wrong(f"returned {len(values)} values, and its kind writes {writes}")
        return dict(zip(self.writes, values, strict=False))


def same_form(component: Component, before: Any, after: Any, method: str = "") -> Any:
    """Return a component's next state if it has the names, shapes and types of the one before.

    Otherwise a later step would fail somewhere else or broadcast, and no checkpoint could be restored.

    Raises:
        PluginError: naming the component, the first value that differs, and the line of the method that returned it.
    """
    of = f" from `{method}`" if method else ""
    if after is None and before is not None:
        raise component.wrong(f"returned None{of}; a function without `return` does", method)
    with component.named():
        was, now = (_leaves(each, "state" if method else "weights") for each in (before, after))
    for name in {**was, **now}:
        if _form(was.get(name)) != _form(now.get(name)):
            # shown as its author chose it: NumPy has 64 bits, which JAX counts as 32
            there, here = (_form(each.get(name), exact=True) for each in (was, now))
            raise component.wrong(f"returned{of} {name} {here}, which was {there} before; keep shape and type", method)
    return after


def _leaves(state: Any, root: str) -> dict[str, Any]:
    return {f"{root}{jax.tree_util.keystr(path)}": leaf for path, leaf in jax.tree.leaves_with_path(state)}


def _form(leaf: Any, *, exact: bool = False) -> str:
    dtype = getattr(leaf, "dtype", None) if exact else None
    return "missing" if leaf is None else f"{dtype or jnp.result_type(leaf)} {jnp.shape(leaf)}"


def split_metrics(result: Any) -> tuple[Any, dict[str, Array]]:
    """Split a result into `(value, metrics)`; metrics are empty if there are none.

    >>> split_metrics((1, {"a": 2}))
    (1, {'a': 2})
    >>> split_metrics((1, 2))
    ((1, 2), {})
    """
    if not (isinstance(result, tuple) and result and isinstance(result[-1], dict)):
        return result, {}
    *values, metrics = result
    return (values[0] if len(values) == 1 else tuple(values)), metrics


def traced(floats: Mapping[str, float]) -> Floats:
    """Convert floats to one fixed type, so that a Python float and an array do not need two executables."""
    return {name: np.float32(value) for name, value in floats.items()}


def sums(role: str, metrics: Mapping[str, Array], mask: Bool[Array, "seq token"]) -> Sums:
    """Reduce metrics to sums and counts: per token over the mask, per sequence over non-empty rows, scalars once."""
    reduced: Sums = {}
    for name, value in metrics.items():
        array = jax.lax.stop_gradient(jnp.asarray(value, jnp.float32))
        kept = mask if array.ndim == 2 else jnp.any(mask, axis=-1) if array.ndim == 1 else jnp.bool_(True)
        reduced[f"{role}/{name}"] = (jnp.sum(jnp.where(kept, array, 0.0)), jnp.sum(kept, dtype=jnp.float32))
    return reduced


def merge(sums: Mapping[str, Any], more: Mapping[str, Any]) -> Sums:
    """Combine partial metrics; a metric that is only on one side is kept.

    >>> merge({"a": (1.0, 2.0)}, {"a": (3.0, 2.0), "b": Peak(jnp.float32(1))})["a"]
    (4.0, 4.0)
    """
    both = dict(sums)
    for name, found in more.items():
        before = both.get(name)
        if before is None:
            both[name] = found
        elif isinstance(found, Peak):
            both[name] = Peak(jnp.maximum(before.value, found.value))
        else:
            both[name] = (before[0] + found[0], before[1] + found[1])
    return both


def once(metrics: Mapping[str, Array]) -> Sums:
    """Return partial metrics in which each metric of a whole step or update counts once."""
    return {name: (value, jnp.float32(1)) for name, value in metrics.items()}


def masked_sum(weights: Float[Array, "seq token"], values: Float[Array, "seq token"]) -> Float[Array, ""]:
    """Return ∑ w·x over positions with a nonzero weight; other values affect neither the sum nor its gradient."""
    return jnp.sum(jnp.where(weights != 0, weights * jnp.where(weights != 0, values, 0.0), 0.0))
