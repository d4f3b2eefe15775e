"""A component that maps fields to arrays, called eagerly and compiled on the batch of the suite."""

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
from dovetail.step.parts import masked_sum, split_metrics
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.batch import Fields
from dovetail_kit.conformance.check import Inapplicable
from dovetail_kit.conformance.compare import Result
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.fields import quantity_in

LEARNT = tuple(kind.name for kind in current().kinds.values() if kind.term or kind.name == "value_loss")
"""Kinds that train a model, so that their gradients matter."""


class ReturnsNothing(Inapplicable):
    """A component forgets to return something, which the check `shapes` says."""


@attrs.define(eq=False)
class ArrayCase:
    """A component on its batch. It is compiled once; all checks that keep the shapes share the program."""

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
        """The component that is called."""
        return self.subject.component

    def fields(self, seed: int = 0) -> Fields:
        """Return the fields that it reads, the mask, and weights for a sum over tokens."""
        return dict(self.subject.once(("fields", seed), lambda: self._fields(seed)))

    def _fields(self, seed: int) -> Fields:
        fields = batch.read_by(self.component, seed)
        if "state" in self.component.reads:
            bound = self.subject.bind()
            earlier = batch.known_fields(seed + 100)
            first = {"state": bound.init(batch.ROLES)}
            names = inspect.signature(bound.update).parameters
            state = bound.update(*(first[name] if name in first else _known(name, earlier) for name in names))
            fields["state"] = jax.tree.map(np.asarray, state)
        return fields

    @property
    def variables(self) -> tuple[str, ...]:
        """The fields to differentiate by: those that depend on the model being trained."""
        return tuple(name for name in self.component.reads if _is_differentiable(name))

    @property
    def variable(self) -> str:
        """The only field to differentiate by.

        Raises:
            Inapplicable: if there is none, or more than one.
        """
        if len(self.variables) != 1:
            raise Inapplicable(
                f"it learns through {', '.join(self.variables) or 'no field'}; this is about exactly one"
            )
        return self.variables[0]

    def eager(self, fields: Fields, **params: Any) -> Result:
        """Call it without compiling."""
        values, metrics = self.call(_jax(fields), self.subject.floats | params)
        return _numpy(values, metrics, {})

    def first(self) -> Result:
        """Call it without compiling on the usual batch, with gradients if it trains a model; cached."""
        return self.subject.once("first", self.again)

    def again(self) -> Result:
        """Call it once more as `first` did: where it is differentiated, JAX computes some last digits otherwise."""
        return _numpy(*self.pure(_jax(self.fields()), self.subject.floats))

    def second(self) -> tuple[Result, list[str]]:
        """Call it again, with NaN where it must not read; also list the state that the call changed; cached."""
        return self.subject.once("second", self._second)

    def _second(self) -> tuple[Result, list[str]]:
        self.first()
        fields = batch.spoilt(self.fields(), np.nan)
        before = {name: np.array(value) for name, value in fields.items() if batch.is_array(value)}
        generators = global_generators()
        try:
            values, metrics = self.call(fields, self.subject.floats)
        except jax.errors.TracerArrayConversionError:  # it indexes a field by what it traces, as it may in a run
            values, metrics = self.call(_jax(fields), self.subject.floats)
        changed = [f"its argument {n}" for n, v in before.items() if fields[n].tobytes() != v.tobytes()]
        changed += ["a global random number generator"] if generators != global_generators() else []
        return _numpy(values, metrics, {}), changed

    def announced(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values and metrics; only their shapes and dtypes if it can be traced, which is cheap."""
        try:
            return jax.eval_shape(self.call, self.fields(), self.subject.floats)
        except Exception:
            result = self.eager(self.fields())
            return result.values, result.metrics

    def run(self, fields: Fields, floats: dict[str, Any] | None = None) -> Result:
        """Call it compiled, with gradients if it trains a model.

        Raises:
            Inapplicable: if it cannot be compiled, which is for the check `jit` to report.
        """
        try:
            return self.compiled(fields, floats)
        except Inapplicable:
            raise
        except Exception as error:
            self._refused = error
            raise Inapplicable("it cannot be compiled: see the check 'jit'") from error

    def compiled(self, fields: Fields, floats: dict[str, Any] | None = None) -> Result:
        """Call it compiled; exceptions from compiling are passed on."""
        if self._refused:
            raise self._refused
        if self._jitted is None:
            self._jitted = jax.jit(self._counted)
        return _numpy(*self._jitted(fields, self.subject.floats if floats is None else floats))

    def constant(self, fields: Fields) -> None:
        """Trace it with its hyperparameters as constants.

        Raises:
            Inapplicable: if even that cannot be done.
        """
        constants = {name: float(value) for name, value in self.subject.floats.items()}
        try:
            jax.eval_shape(lambda traced: self.pure(traced, constants), fields)
        except Exception as error:
            raise Inapplicable("it cannot be compiled: see the check 'jit'") from error

    def pure(self, fields: Fields, floats: Any) -> Any:
        """The function that is compiled: fields and traced hyperparameters to values, metrics and gradients."""
        if self.component.kind in LEARNT:
            return self._with_gradients(fields, floats)
        return (*self.call(fields, floats), {})

    def call(self, fields: Fields, floats: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Call it with its hyperparameters bound; returns a tuple of values, and the metrics."""
        bound = self.subject.bind(**floats)
        value, metrics = split_metrics(bound(*(fields[name] for name in self.component.reads)))
        values = value if isinstance(value, tuple) else (value,)
        if value is None:
            raise ReturnsNothing("it returns None: see the check 'shapes'")
        return values, metrics

    def _counted(self, fields: Fields, floats: Any) -> Any:
        self.traces += 1
        return self.pure(fields, floats)

    def _with_gradients(self, fields: Fields, floats: Any) -> Any:
        def total(variables: Fields) -> Any:
            values, metrics = self.call(fields | variables, floats)
            if values[0].shape != fields["weights"].shape:
                raise Inapplicable("it does not return a value for each token: see the check 'shapes'")
            return masked_sum(fields["weights"], values[0].astype(jnp.float32)), (values, metrics)

        variables = {name: fields[name] for name in self.variables}
        (_, (values, metrics)), gradients = jax.value_and_grad(total, has_aux=True)(variables)
        return values, metrics, gradients


def is_quantity(component: Component) -> bool:
    """Tell whether it is a field computed position by position in a forward pass."""
    return component.kind == "field" and is_of_a_pass(component) and "mask" not in component.reads


def on_batch(component: Component) -> bool:
    """Tell whether it sees whole completions."""
    return not is_quantity(component)


def without_key(component: Component) -> bool:
    """Tell whether it sees whole completions and draws nothing at random."""
    return on_batch(component) and "key" not in component.reads


def draws_nothing(component: Component) -> bool:
    """Tell whether it sees whole completions, and nothing in it depends on a random draw, of the batch or of a row."""
    return without_key(component) and "row_keys" not in component.reads


def _known(name: str, earlier: Fields) -> Any:
    return jnp.asarray(batch.field(name, earlier))


def _is_differentiable(name: str) -> bool:
    quantity = quantity_in(name, current())
    return name == "values" or (quantity is not None and quantity.live)


def global_generators() -> tuple[Any, str]:
    """The states of Python's and numpy's global generators, which third parties may use."""
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002


def _jax(fields: Fields) -> Fields:
    return jax.tree.map(lambda value: value if isinstance(value, jax.Array) else jnp.asarray(value), fields)


def _numpy(values: Any, metrics: Any, gradients: Any) -> Result:
    values, metrics, gradients = jax.tree.map(np.asarray, (values, metrics, gradients))
    return Result(values, metrics, gradients)
