"""The fields of a batch as they stand at one moment of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from dovetail.arrays import full_precision
from dovetail.errors import nearest
from dovetail.kinds import FIELDS
from dovetail.kinds.fields import Combine
from dovetail.plan.plan import Call
from dovetail.plan.roles import OLD
from dovetail.step.parts import Fields, Floats, Part, Sums, merge


class View(Mapping[str, Any]):
    """The available fields; a derived field is computed when it is first read, and existing fields never change.

    As a mapping it has the fields that are there: `in`, `len` and iteration neither compute a derived field nor count
    it, because what is derived here may need what exists only in a forward pass. Reading tells, as in a `defaultdict`.

    A stage adds its components' results to a new view, in which derived fields that depend on them are computed again.
    So an estimator never reads a field that was derived from the mask before a correction narrowed it.

    At collection a bare quantity such as `entropy` is that of the policy at collection, `old_entropy`.
    """

    def __init__(
        self,
        known: Fields,
        derived: Mapping[str, Part],
        hyper: Mapping[str, Floats],
        *,
        at_collection: bool = False,
        log: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self._known = dict(known)
        self._derived = derived
        self._hyper = hyper
        self._at_collection = at_collection
        self._computed: dict[str, Any] = {}
        # shared by all views of a trace: a field that is computed again logs its metrics again, and the last ones count
        self._log: dict[str, dict[str, Any]] = {} if log is None else log
        self._depends: dict[str, frozenset[str]] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        if self._at_collection and f"{OLD}{name}" in self._known:
            return self._known[f"{OLD}{name}"]
        if name not in self._derived:
            raise KeyError(f"'{name}' is not a field here.{nearest(name, [*self._known, *self._derived])}")
        if name not in self._computed:
            self._compute(name)
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def _compute(self, name: str) -> None:
        part = self._derived[name]
        self._computed[name], self._log[name] = part(self, self._hyper)
        if isinstance(self._computed[name], dict):
            check_shape(part, f"'{name}'", self._computed[name], ())
        reads = [part.renames.get(read, read) for read in part.component.reads]
        below = [self._depends.get(read, frozenset()) for read in reads]
        self._depends[name] = frozenset(reads).union(*below)

    def take(self, found: Fields) -> View:
        """Return a new view with some fields replaced."""
        known = self._known | dict(found)
        after = View(known, self._derived, self._hyper, at_collection=self._at_collection, log=self._log)
        # a bare name may mean the quantity at collection, so a change of either counts
        changed = {*found, *(name.removeprefix(OLD) for name in found)}
        for name, depends in self._depends.items():
            if not depends & changed:
                after._computed[name] = self._computed[name]
                after._depends[name] = depends
        return after

    def known(self) -> dict[str, Any]:
        """Return the fields that are not derived."""
        return dict(self._known)

    def metrics(self) -> Sums:
        """Return the metrics of derived fields in this view and in the views that it was made from."""
        found: Sums = {}
        for name, measured in self._log.items():
            found |= self._derived[name].sums(measured, self._known["mask"], f"field/{name}")
        return found


def run_stage(parts: tuple[Part, ...], view: View, hyper: Mapping[str, Floats]) -> tuple[View, Sums]:
    """Call the components of one stage; return the view with their results, and their metrics.

    Every component sees the fields as they were at the beginning of the stage, except fields that the components of a
    kind replace one after another: reward shapings form a chain, corrections do not.
    """
    before, found, metrics = view, dict[str, Any](), Sums()
    for part in parts:
        value, measured = part(view, hyper)
        metrics = merge(metrics, part.sums(measured, before["mask"]))
        for name, new in part.named(value).items():
            how = combine_of(name)
            check_shape(part, f"'{name}'", new, _shape_of(name, before), is_mask=how == "and")
            kept = _as_kept(name, new)
            found[name] = kept if how == "replace" else _combined(how, found.get(name, before.get(name)), kept)
            if how == "replace":
                view = view.take({name: kept})
    return before.take(found), metrics


def check_shape(part: Part, what: str, value: Any, wanted: tuple[int, ...] | None, *, is_mask: bool = False) -> None:
    """Refuse a result whose shape is not that of the field that it becomes, which broadcasting might hide.

    Raises:
        PluginError: naming the component that returned it; also if `is_mask` and it holds anything but booleans.
    """
    if wanted is None:
        return
    how = ""
    if isinstance(value, list | tuple | dict):
        how = f"as a {type(value).__name__} of {len(value)}; return one array, or the array and a dict of metrics"
    elif jnp.shape(value) != wanted:
        each = "token" if len(wanted) > 1 else "completion"
        how = f"the shape {jnp.shape(value)}; it has {wanted} here, one number for each {each}"
    elif is_mask and (dtype := jnp.result_type(value)) != jnp.bool_:
        how = f"as {dtype}; return booleans, as in `x > 0`"
    if how:
        raise part.component.wrong(f"gives {what} {how}")


def _shape_of(name: str, view: View) -> tuple[int, ...] | None:
    """Return the shape of a field according to the glossary; None for a field that is not in it."""
    said = FIELDS[name].shape.partition("]")[0] if name in FIELDS else ""
    positions = jnp.shape(view["mask"])
    return {"[seq, token": positions, "[seq": positions[:1]}.get(said)


def _as_kept(name: str, value: Any) -> Any:
    """Return a numeric field as float32 or wider; components may also return integers or half precision."""
    if name not in FIELDS or FIELDS[name].shape != "[seq, token]":
        return value
    is_float = jnp.issubdtype(jnp.result_type(value), jnp.floating)
    return full_precision(value) if is_float else jnp.asarray(value, dtype=float)


def check_rows(calls: Iterable[Call], batch: Mapping[str, Any]) -> None:
    """Refuse fields that cannot be split with the completions.

    Raises:
        PluginError: naming the component that wrote the field.
    """
    rows = batch["tokens"].shape[0]
    for call in calls:
        for field in call.kind.writes:
            if field in batch and jnp.shape(batch[field])[:1] != (rows,):
                how = f"gives '{field}' the shape {jnp.shape(batch[field])}; a field of the batch has a row for each of"
                raise call.component.wrong(f"{how} its {rows} completions")


def combine_of(field: str) -> Combine:
    """Return how several results for a field are combined; results of a plugin's own kinds replace one another."""
    return FIELDS[field].combine if field in FIELDS else "replace"


def _combined(how: Combine, before: Any, new: Any) -> Any:
    if how == "and":
        return new if before is None else before & new
    weights = jnp.asarray(new, dtype=float)  # a mask is a weight too
    return weights if before is None else before * weights
