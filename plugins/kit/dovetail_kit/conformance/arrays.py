"""A component that maps fields to arrays, called eagerly and compiled; and how figures are compared."""

from __future__ import annotations

import inspect
import random
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from dovetail.plan import is_quantity as is_of_a_pass
from dovetail.registry import Component, current
from dovetail.train.parts import masked_sum, split_metrics
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.batch import Fields
from dovetail_kit.conformance.check import Failed, Inapplicable
from dovetail_kit.conformance.subject import Subject

LEARNT = ("policy_loss", "value_loss", "kl")
"""Kinds through which a model learns, so that gradients matter."""


@attrs.frozen
class Result:
    """What came of a call: the values, the metrics, and gradients of ∑ w·value by what is differentiable."""

    values: tuple[np.ndarray, ...]
    metrics: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]

    @property
    def value(self) -> np.ndarray:
        """The first of the values."""
        return self.values[0]


@attrs.define(eq=False)
class ArrayCase:
    """A component on its batch. Compiled once: every check that can do with the usual shapes shares the program."""

    subject: Subject
    traces: int = 0
    _jitted: Any = None
    _refused: Exception | None = None

    @classmethod
    def of(cls, subject: Subject) -> ArrayCase:
        """Return the case of a subject, the same one for all of its checks."""
        return subject.once(cls, lambda: cls(subject))

    @property
    def component(self) -> Component:
        """What is called."""
        return self.subject.component

    def fields(self, seed: int = 0) -> Fields:
        """Return what it reads, the mask, and weights."""
        return dict(self.subject.once(("fields", seed), lambda: self._fields(seed)))

    def _fields(self, seed: int) -> Fields:
        fields = batch.read_by(self.component, seed)
        if "state" in self.component.reads:
            bound = self.subject.bind()
            earlier = batch.known_fields(seed + 100)
            names = list(inspect.signature(bound.update).parameters)[1:]
            state = bound.update(bound.init(batch.ROLES), *(jnp.asarray(batch.field(name, earlier)) for name in names))
            fields["state"] = jax.tree.map(np.asarray, state)
        return fields

    @property
    def variables(self) -> tuple[str, ...]:
        """The fields through which it learns: those of the model being trained."""
        return tuple(name for name in self.component.reads if _is_differentiable(name))

    @property
    def variable(self) -> str:
        """The field through which it learns, where that is one.

        Raises:
            Inapplicable: if there are none, or several.
        """
        if len(self.variables) != 1:
            raise Inapplicable(f"it learns through {self.variables or 'no field'}, and this is about one")
        return self.variables[0]

    def eager(self, fields: Fields, **params: Any) -> Result:
        """Call it as it is."""
        values, metrics = self._call(_jax(fields), self.subject.floats | params)
        return _numpy(values, metrics, {})

    def first(self) -> Result:
        """Call it as it is on the usual batch, with gradients where it is learnt from; the first such call."""
        return self.subject.once("first", lambda: _numpy(*self.pure(_jax(self.fields()), self.subject.floats)))

    def second(self) -> tuple[Result, list[str]]:
        """Call it once more, with NaN where nobody may look; say what that changes: arguments, global generators."""
        return self.subject.once("second", self._second)

    def _second(self) -> tuple[Result, list[str]]:
        self.first()
        fields = batch.spoilt(self.fields(), np.nan)
        before = {name: np.array(value) for name, value in fields.items() if batch.is_array(value)}
        generators = _generators()
        values, metrics = self._call(fields, self.subject.floats)
        changed = [f"its argument {n}" for n, v in before.items() if fields[n].tobytes() != v.tobytes()]
        changed += ["a global generator of random numbers"] if generators != _generators() else []
        return _numpy(values, metrics, {}), changed

    def announced(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values and metrics, or, where it can be traced, their shapes and types without computing them."""
        try:
            return jax.eval_shape(self._call, self.fields(), self.subject.floats)
        except Exception:
            result = self.eager(self.fields())
            return result.values, result.metrics

    def run(self, fields: Fields, floats: dict[str, Any] | None = None) -> Result:
        """Call it compiled, with gradients where it is learnt from.

        Raises:
            Inapplicable: if it cannot be compiled, which the check `jit` tells.
        """
        try:
            return self.compiled(fields, floats)
        except Inapplicable:
            raise
        except Exception as error:
            self._refused = error
            raise Inapplicable("it cannot be compiled: see the check 'jit'") from error

    def compiled(self, fields: Fields, floats: dict[str, Any] | None = None) -> Result:
        """Call it compiled; raises what compiling raises."""
        if self._refused:
            raise self._refused
        if self._jitted is None:
            self._jitted = jax.jit(self._counted)
        return _numpy(*self._jitted(fields, self.subject.floats if floats is None else floats))

    def constant(self, fields: Fields) -> None:
        """Compile it with its hyperparameters as constants.

        Raises:
            Inapplicable: if that cannot be done either.
        """
        constants = {name: float(value) for name, value in self.subject.floats.items()}
        try:
            jax.eval_shape(lambda traced: self.pure(traced, constants), fields)
        except Exception as error:
            raise Inapplicable("it cannot be compiled: see the check 'jit'") from error

    def pure(self, fields: Fields, floats: Any) -> Any:
        """The function that is compiled: fields and traced hyperparameters to values, metrics and gradients."""
        if self.component.kind in LEARNT:
            return self._pull(fields, floats)
        return (*self._call(fields, floats), {})

    def _counted(self, fields: Fields, floats: Any) -> Any:
        self.traces += 1
        return self.pure(fields, floats)

    def _call(self, fields: Fields, floats: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self.subject.bind(**floats)
        value, metrics = split_metrics(bound(*(fields[name] for name in self.component.reads)))
        return (value if isinstance(value, tuple) else (value,)), metrics

    def _pull(self, fields: Fields, floats: Any) -> Any:
        def total(variables: Fields) -> Any:
            values, metrics = self._call(fields | variables, floats)
            if values[0].shape != fields["weights"].shape:
                raise Inapplicable("it returns no value for each token: see the check 'shapes'")
            return masked_sum(fields["weights"], values[0].astype(jnp.float32)), (values, metrics)

        variables = {name: fields[name] for name in self.variables}
        (_, (values, metrics)), gradients = jax.value_and_grad(total, has_aux=True)(variables)
        return values, metrics, gradients


def _generators() -> tuple[Any, str]:
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - what others may use


def _is_differentiable(name: str) -> bool:
    if name in ("logps", "values"):
        return True
    registry = current()
    return registry.has("field", name) and is_of_a_pass(registry.get("field", name))


def is_quantity(component: Component) -> bool:
    """Tell whether it is computed position by position in a forward pass."""
    of_a_pass = component.kind == "field" and is_of_a_pass(component)
    return of_a_pass and "mask" not in component.reads


def on_batch(component: Component) -> bool:
    """Tell whether it sees whole completions."""
    return not is_quantity(component)


def without_key(component: Component) -> bool:
    """Tell whether it sees whole completions, and draws nothing at random."""
    return on_batch(component) and "key" not in component.reads


def _jax(fields: Fields) -> Fields:
    return jax.tree.map(lambda value: value if isinstance(value, jax.Array) else jnp.asarray(value), fields)


def _numpy(values: Any, metrics: Any, gradients: Any) -> Result:
    values, metrics, gradients = jax.tree.map(np.asarray, (values, metrics, gradients))
    return Result(values, metrics, gradients)


def same(actual: Any, expected: Any, what: str, *, within: float = 1e-5, where: Any = True) -> None:
    """Compare arrays where somebody may look; `where` is a mask of the leading axes.

    Raises:
        Failed: with the largest difference, and where it is.
    """
    actual, expected = (np.asarray(x) for x in (actual, expected))
    if actual.shape != expected.shape:
        raise Failed(f"{what}: shape {list(actual.shape)} instead of {list(expected.shape)}")
    seen = np.asarray(where)
    seen = np.broadcast_to(seen.reshape(seen.shape + (1,) * (actual.ndim - seen.ndim)), actual.shape)
    ours, theirs = (np.where(seen, x.astype(np.float64), 0.0) for x in (actual, expected))
    close = np.isclose(ours, theirs, rtol=within, atol=within, equal_nan=True)
    if not close.all():
        gap = np.where(close, 0.0, np.nan_to_num(np.abs(ours - theirs), nan=np.inf, posinf=np.inf))
        at = np.unravel_index(np.argmax(gap), gap.shape) if gap.ndim else ()
        place = f"[{', '.join(map(str, at))}]" if at else ""
        raise Failed(
            f"{what}{place} is {ours[at]:.6g} instead of {theirs[at]:.6g} ({np.sum(~close)} of {close.size} differ)"
        )


def same_results(actual: Result, expected: Result, what: str, *, within: float = 1e-5, where: Any = True) -> None:
    """Compare values, metrics and gradients, token by token inside a mask.

    Raises:
        Failed: with the largest difference, and where it is.
    """
    if len(actual.values) != len(expected.values):
        raise Failed(f"{what}: {len(actual.values)} values instead of {len(expected.values)}")
    pairs = [
        *((f"value {i}" if i else "the value", actual.values[i], value) for i, value in enumerate(expected.values)),
        *((f"the metric '{name}'", actual.metrics[name], expected.metrics[name]) for name in expected.metrics),
        *((f"the gradient by {name}", actual.gradients[name], expected.gradients[name]) for name in expected.gradients),
    ]
    seen = np.asarray(where)
    for name, ours, theirs in pairs:
        rows = seen.any(axis=-1) if seen.ndim > 1 else seen
        by_token = seen.ndim > 1 and ours.ndim > 1 and ours.shape[:2] == seen.shape[:2]
        mask = seen if by_token else rows if ours.ndim and ours.shape[:1] == rows.shape else True
        same(ours, theirs, f"{what}: {name}", within=within, where=mask)


def finite(array: Any, what: str) -> None:
    """Check that there is no NaN or infinity.

    Raises:
        Failed: if there is.
    """
    array = np.asarray(array)
    if array.dtype.kind in "fc" or array.dtype.name == "bfloat16":
        bad = ~np.isfinite(array.astype(np.float32))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            raise Failed(f"{what}{list(at) or ''} is {array[at]} ({bad.sum()} of {bad.size} are not finite)")
