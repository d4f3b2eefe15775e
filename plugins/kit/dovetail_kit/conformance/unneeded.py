"""Claims that change nothing for a component, and with which it is spared checks that it would pass."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

from dovetail.errors import listing
from dovetail.registry import Component
from dovetail_kit.conformance.check import Check, Inapplicable, checks
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.malformed import fault_of
from dovetail_kit.conformance.subject import Subject

GONE_BY: Final = (
    "batch_invariant",
    "constant",
    "elsewhere",
    "in_flight",
    "keeps_choices",
    "loaded",
    "placed",
    "reads_examples",
    "reports_logps",
    "turns",
    "versions",
    "vocabulary_logps",
)
"""Claims that the engine goes by, whatever the checks make of them."""


def suspects(component: Component) -> list[str]:
    """Return the claims of a component that only say that something is not asked of it."""
    if fault_of(component):
        return []
    claimed = {check.claim for check in checks(component.kind)}
    return [
        name
        for name, value in component.declares.items()
        if name in CLAIMS and name not in (*GONE_BY, *claimed) and value is (name != "deterministic")
    ]


def unneeded(subject: Subject) -> Iterator[str]:
    """Yield what to say of each claim without which the component passes every check that the claim concerns, and of
    which nothing else shows that it is true.

    >>> from dovetail.registry import current
    >>> list(unneeded(Subject(current().get("loss_agg", "token_mean"))))
    []
    """
    component = subject.component
    for claim in suspects(component):
        before = {check for check in checks(component.kind) if check.applies(component)}
        with _without(component.load(), claim):
            subjects = [Subject(component, {**subject.given, **numbers}) for numbers in ({}, *_other_numbers(subject))]
            applying = [check for check in checks(component.kind) if check.applies(component)]
            spared = [check for check in applying if check not in before]
            others = [check for check in applying if check in before and _reads(check, claim)]
            asked = [(check, other) for other in subjects for check in (*spared, *others)]
            needed = not spared or not all(_passes(check, other) for check, other in asked)
        if not needed and not _is_true(claim, subject):
            names = listing((check.name for check in spared), 6)
            yield f"{claim}={component.declares[claim]} may be left out: it passes {names} without it, too"


def _other_numbers(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the least and the largest other value of each of its numbers, with which a claim may be needed."""
    from dovetail_kit.conformance.suites.hyperparameters import own_numbers, tries

    for name in own_numbers(subject):
        tried = tries(subject, name)
        yield from ({name: value} for value in sorted({min(tried), max(tried)} if tried else ()))


def _is_true(claim: str, subject: Subject) -> bool:
    """Tell whether a claim is seen to be true, although the checks, which look at little, pass without it."""
    from dovetail_kit.conformance.suites.elsewhere import comes_twice  # the checks need all kinds to be registered

    return claim == "repeats" and comes_twice(subject)


@contextlib.contextmanager
def _without(target: Any, claim: str) -> Iterator[None]:
    """Take a claim from a function or class for a while."""
    own, before = "declares" in vars(target), target.declares
    target.declares = {name: value for name, value in before.items() if name != claim}
    try:
        yield
    finally:
        if own:
            target.declares = before
        else:
            del target.declares


def _reads(check: Check, claim: str) -> bool:
    """Whether what a check does may depend on the claim: its module names it."""
    return f'"{claim}"' in inspect.getsource(sys.modules[check.function.__module__])


def _passes(check: Check, subject: Subject) -> bool:
    try:
        check.function(subject)
    except Inapplicable:
        return True
    except Exception:
        return False
    return True
