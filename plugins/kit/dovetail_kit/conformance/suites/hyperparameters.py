"""Claims about hyperparameters: each of them does something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import listing
from dovetail.ranges import plain
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, on_batch
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import Result
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.numbers import CONTROLLERS, SCHEDULES, TOTAL
from dovetail_kit.conformance.suites.values import ARRAYS

FIX = "Use the hyperparameter, or take it out; declare idle=('name',) if it matters only in cases that are rare."
FAR = 3.0
"""What fields are multiplied by, so that bounds are met."""


@check(*ARRAYS, when=on_batch, name="every_number_counts", fix=FIX)
def every_number_counts(subject: Subject) -> None:
    """Another value of any float hyperparameter changes a value or a gradient (without gradients, also a metric) on
    some of the batches.

    A discount that is never applied, or an upper bound that is used in place of the lower one, would go unnoticed: a
    sweep over it would compare identical runs.
    """
    case = ArrayCase.of(subject)
    for name, value in own_numbers(subject).items():
        seen = any(_differs(case, fields, name, other) for fields in _batches(case) for other in tries(value))
        if not seen and not any(_counts_under(case, option, name, value) for option in _options(subject)):
            raise Failed(f"'{name}' = {value:g} can be changed to {listing(f'{x:g}' for x in tries(value))} unseen")


@check(*SCHEDULES, *CONTROLLERS, name="every_number_counts", fix=FIX)
def every_number_of_a_curve_counts(subject: Subject) -> None:
    """Another value of any float hyperparameter changes the curve.

    A sweep over a number without effect would compare identical runs.
    """
    curve = _curve if subject.component.kind in SCHEDULES else _coefficients
    expected = curve(subject, {})
    for name, value in own_numbers(subject).items():
        if all(np.array_equal(curve(subject, {name: np.float32(other)}), expected) for other in tries(value)):
            raise Failed(f"'{name}' = {value:g} can be changed to {listing(f'{x:g}' for x in tries(value))} unseen")


def _options(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the other choices that its hyperparameters offer, one at a time: some numbers matter under them alone."""
    for name, value in subject.params.items():
        hint = plain(subject.component.hints[name])
        words = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
        yield from ({name: word} for word in words if word != value and name not in subject.component.common)


def _counts_under(case: ArrayCase, option: dict[str, Any], name: str, value: float) -> bool:
    """Tell whether a hyperparameter does something under an option; not compiled, as this is rarely asked."""
    for fields in _batches(case):
        before = case.eager(fields, **option)
        if any(_unequal(before, case.eager(fields, **option, **{name: np.float32(x)})) for x in tries(value)):
            return True
    return False


def own_numbers(subject: Subject) -> dict[str, Any]:
    """Return the float hyperparameters that are to do something, with their values."""
    left_out = (*subject.component.common, *subject.declared.get("idle", ()))
    return {name: value for name, value in subject.floats.items() if name not in left_out}


def tries(value: Any) -> tuple[float, ...]:
    """Return values other than a given one: nearer, farther, none, and beyond most bounds."""
    return tuple(x for x in (0.5 * value, 2 * value + 0.1, 0.0, 0.9, 30.0) if x != value)


def _batches(case: ArrayCase) -> Iterator[batch.Fields]:
    yield case.fields()
    for factor in (FAR, FAR**3, 0.01):
        yield _scaled(case.fields(1), factor)


def _scaled(fields: batch.Fields, factor: float) -> batch.Fields:
    """Return fields whose floats are farther apart, or nearer."""
    return fields | {
        name: (value * np.float32(factor)).astype(value.dtype)
        for name, value in fields.items()
        if batch.is_float(value) and name != "weights"
    }


def _differs(case: ArrayCase, fields: batch.Fields, name: str, value: float) -> bool:
    floats = case.subject.floats
    if _unequal(case.run(fields), case.run(fields, floats | {name: np.float32(value)})):
        return True
    return "state" in fields and _remembers_otherwise(case, fields, name, value)


def _unequal(before: Result, after: Result) -> bool:
    pairs = [*zip(before.values, after.values, strict=True)]
    if not before.gradients:  # a bound that only a metric counts with leaves a loss without it
        pairs += [(before.metrics[key], after.metrics[key]) for key in before.metrics]
    pairs += [(before.gradients[key], after.gradients[key]) for key in before.gradients]
    return not all(np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f") for ours, theirs in pairs)


def _remembers_otherwise(case: ArrayCase, fields: batch.Fields, name: str, value: float) -> bool:
    """Tell whether what an estimator remembers depends on a hyperparameter."""
    arguments = [jax.tree.map(jnp.asarray, fields[read]) for read in case.component.reads]
    states = [
        case.subject.bind(**(case.subject.floats | changed)).update(*arguments)
        for changed in ({}, {name: np.float32(value)})
    ]
    leaves = [jax.tree.leaves(state) for state in states]
    return not all(np.array_equal(ours, theirs) for ours, theirs in zip(*leaves, strict=True))


def _curve(subject: Subject, changed: dict[str, Any]) -> np.ndarray:
    schedule = subject.bind(**(subject.floats | changed))
    return np.array([schedule(jnp.int32(step), jnp.int32(TOTAL)) for step in range(0, TOTAL + 1, 3)])


def _coefficients(subject: Subject, changed: dict[str, Any]) -> np.ndarray:
    controller = subject.bind(**(subject.floats | changed))
    state, found = controller.init(0.1), []
    for value in (0.0, 9.0, 0.01, 0.2, 0.0, 40.0):
        state = controller.update(state, jnp.float32(value), jnp.int32(64))
        found.append(controller.coef(state))
    return np.array(found)
