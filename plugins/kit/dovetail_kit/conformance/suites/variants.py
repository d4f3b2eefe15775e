"""Claims about settings that are off by default: the same checks hold with each of them turned on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

import attrs

from dovetail.ranges import plain, union_of
from dovetail.registry import REQUIRED, Component
from dovetail_kit.conformance.case import on_batch
from dovetail_kit.conformance.check import Check, Failed, Inapplicable, applicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.hyperparameters import off_by_default, others
from dovetail_kit.conformance.suites.numbers import SCHEDULES
from dovetail_kit.conformance.suites.values import ARRAYS

ALWAYS: Final = (
    "all_masked",
    "at_rest",
    "empty_rows",
    "every_step",
    "finite_results",
    "garbage",
    "micro_batches",
    "non_negative",
    "normaliser",
    "padding",
    "zero_at_equality",
    "zero_outside_the_mask",
)
"""Checks of what no setting may change, if it applies to the component."""
OF_ANY_NUMBER: Final = (
    "all_masked",
    "empty_rows",
    "finite_results",
    "garbage",
    "micro_batches",
    "padding",
    "zero_outside_the_mask",
)
"""Those among them that hold for a number other than zero, too, whatever it is for."""
AT_A_POINT: Final = ("on_policy_gradient",)
"""Checks of what a bound may change where it has an effect."""
OF_WORDS: Final = ("clip_side", *AT_A_POINT)
"""Checks that hold for each word, but may fail with a further bound: a dual clip stops what `clip_side` sees go on."""


@attrs.frozen
class _Variant:
    """A setting turned on: its name, the values to try, and the checks that must pass with one or all of them."""

    name: str
    values: tuple[Any, ...]
    some: tuple[str, ...]
    always: tuple[str, ...] = ALWAYS


def _variants(component: Component) -> Iterator[_Variant]:
    """Yield the settings of a component that are off by default, one at a time, and the defaults of others that it is
    checked with.
    """
    checked_with = component.declares.get("settings", {})
    for name, default in component.params.items():
        options = [plain(option) for option in union_of(plain(component.hints[name]))]
        words = tuple(word for option in options if get_origin(option) is Literal for word in get_args(option))
        if name in component.common:
            continue
        if default is not REQUIRED and default is not None and checked_with.get(name, default) != default:
            yield _Variant(name, (default,), (), OF_ANY_NUMBER)
        if bool in options:
            yield _Variant(name, (not default,), AT_A_POINT)
        for word in words if default in (None, *words) else ():
            if word != default:
                yield _Variant(name, (word,), OF_WORDS)
        if numbers := off_by_default(component, name):
            yield _Variant(name, numbers, AT_A_POINT)
        elif float in options and default == 0 and (numbers := others(component, name, 0.0)):
            yield _Variant(name, numbers[:1], (), OF_ANY_NUMBER)


def _has_variants(component: Component) -> bool:
    return any(_variants(component)) and (component.kind not in ARRAYS or on_batch(component))


@check(
    *ARRAYS,
    *SCHEDULES,
    "optimizer",
    when=_has_variants,
    fix="Run the check that it names with this setting as the default, and mend the branch that the setting turns on.",
)
def holds_with_every_setting(subject: Subject) -> None:
    """With each setting that is off by default turned on, one at a time, it passes the same checks: of padding,
    masking, empty rows and finite values, and of its claims about the gradient.

    A setting that no default uses is a branch that nothing else runs. A word is every other one that its annotation
    allows, and an optional number, or one that is 0, one within its range. A default that `settings` replaces is tried
    as well.
    """
    for variant in _variants(subject.component):
        failures = [_failures(subject, variant, value) for value in variant.values]
        told = [message for found in failures for name, message in found.items() if name in variant.always]
        everywhere = set.intersection(*({*found} for found in failures))
        told += [message for found in failures for name, message in found.items() if name in everywhere]
        if told:
            raise Failed(told[0])


def _failures(subject: Subject, variant: _Variant, value: Any) -> dict[str, str]:
    """Return what fails with a setting, by the name of the check."""
    other = Subject(subject.component, dict(subject.given) | {variant.name: value})
    found = {}
    for each in _checks(subject, variant):
        try:
            each.function(other)
        except Inapplicable:
            continue
        except Failed as error:
            found[each.name] = f"with '{variant.name}' = {value!r} it fails '{each.name}': {error}"
    other.forget()
    return found


def _checks(subject: Subject, variant: _Variant) -> list[Check]:
    names = {*variant.always, *variant.some} - {*subject.declared.get("expected_failures", ())}
    return [each for each in applicable(subject.component) if each.name in names]
