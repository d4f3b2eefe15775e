"""Claims about what a component announces of its result: in its annotation, and in the words of its docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, jaxtyped

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase, on_batch
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import read_where
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.values import ARRAYS

NUMBER: Final = r"(-?\d+(?:\.\d+)?)"
BETWEEN: Final = re.compile(rf"\b(?:between {NUMBER} and {NUMBER}|(?:from|in) \[?{NUMBER}(?:,| to) {NUMBER}\]?)(?!\w)")
NOT_NEGATIVE: Final = re.compile(r"\b(?:not|never) negative\b|\bnon-?negative\b", re.IGNORECASE)
RETURNS: Final = re.compile(r"^Returns:\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
ROUNDING: Final = 1e-4


def _annotated(component: Component) -> Any:
    """Return the annotation of the result of a function, resolved; None if it has none that says a shape."""
    target = component.load()
    if not inspect.isfunction(target):
        return None
    try:
        return typing.get_type_hints(target, include_extras=True).get("return")
    except (NameError, TypeError):
        return None


def _is_shape(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, AbstractArray)


@check(
    *ARRAYS,
    when=lambda component: on_batch(component) and _is_shape(_annotated(component)),
    fix="Reduce over the axis that the annotation leaves out: axis=1 goes through the tokens of a completion.",
)
def returns_what_it_announces(subject: Subject) -> None:
    """Its result has the axes of its annotation, whose names are those of its arguments: Float[Array, "seq token"].

    A mean over the wrong axis has as many axes as the right one. A reader believes the annotation.
    """
    component, announced = subject.component, _annotated(subject.component)
    hints = typing.get_type_hints(component.load(), include_extras=True)
    fields = ArrayCase.of(subject).fields()
    with jaxtyped("context"):
        for name in component.reads:
            if _is_shape(hints.get(name)) and not isinstance(jnp.asarray(fields[name]), hints[name]):
                raise Inapplicable(f"'{name}' is not what its annotation says")
        value = jnp.asarray(ArrayCase.of(subject).run(fields).value)
        if not isinstance(value, announced):
            raise Failed(
                f"it is annotated to return {announced.__name__}, and returns {value.dtype.name}{list(value.shape)} for"
                f" {batch.ROWS} completions of {batch.TOKENS} tokens"
            )


def promised(component: Component) -> tuple[float, float] | None:
    """Return the range that the section on the result says the numbers are in."""
    found = RETURNS.search(inspect.getdoc(component.load()) or "")
    if found is None:
        return None
    if between := BETWEEN.search(found[1]):
        low, high = (float(number) for number in between.groups() if number is not None)
        return (low, high) if low < high else None
    return (0.0, np.inf) if NOT_NEGATIVE.search(found[1]) else None


@check(
    *ARRAYS,
    when=lambda component: promised(component) is not None,
    fix="Compare the formula in the docstring with the code, term by term; or correct what the docstring says.",
)
def keeps_its_word(subject: Subject) -> None:
    """If the section `Returns:` says "between 0 and 1", or "not negative", its numbers are.

    What leaves the range that its formula has is not that formula.
    """
    said = promised(subject.component)
    assert said is not None
    case = ArrayCase.of(subject)
    for fields in _given(case):
        value = case.run(fields).value
        everywhere = not on_batch(subject.component)  # a forward pass has no mask
        seen = np.asarray(value if everywhere else value[read_where(value, fields["mask"])], np.float64)
        low, high = float(seen.min(initial=np.inf)), float(seen.max(initial=-np.inf))
        slack = ROUNDING * max(1.0, *(abs(end) for end in said if np.isfinite(end)))
        if low < said[0] - slack or high > said[1] + slack:
            raise Failed(
                f"its docstring promises numbers from {said[0]:g} to {said[1]:g}; they are from {low:.6g} to {high:.6g}"
            )


def _given(case: ArrayCase) -> Iterator[batch.Fields]:
    """Yield several batches, and one in which the model is surer, and less sure."""
    yield from (case.fields(seed) for seed in range(3))
    logits = [name for name in case.component.reads if name.endswith("logits")]
    for factor in (10.0, 4.0, 0.1) if logits else ():
        fields = case.fields()
        yield fields | {name: (factor * fields[name]).astype(np.float32) for name in logits}
