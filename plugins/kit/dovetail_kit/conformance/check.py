"""A check: its claim, the components it applies to, the meaning of a failure, and how to fix one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import attrs

from dovetail.registry import Component

UNWORKED: Final = "so nothing says whether it computes what it should: see 'Work out an example' in docs/plugins.md"
"""Why it is worth saying that a component has no example; a report is searched for it."""


class Failed(AssertionError):
    """A component does not pass a check; the message holds the figures seen."""


class Inapplicable(Exception):
    """A check cannot be carried out here; the message says why, and what to do."""


@attrs.frozen(kw_only=True)
class Check:
    """One claim about components of some kinds.

    Attributes:
        name: its name in reports and `expected_failures`; unique within a kind.
        kinds: the kinds it applies to; empty for all.
        reads: fields that a component must read for this to apply.
        when: a further condition on the component.
        claim: what a component must declare for this to apply, such as `on_policy_gradient`.
        unless: what a component may declare so that this does not apply.
        slow: whether it takes more than a second for one component.
        doctor: the level at which `dovetail plugin doctor` reports a failure, for checks that need no computation;
            None if only pytest carries it out.
        summary: the claim, in a sentence.
        meaning: what a failure means for a run.
        fix: how to fix one.
        function: raises `Failed` for a subject that does not pass.
    """

    name: str
    kinds: tuple[str, ...]
    reads: tuple[str, ...]
    when: Callable[[Component], bool] | None
    claim: str | None
    unless: str | None
    slow: bool
    doctor: Literal["error", "warning"] | None
    summary: str
    meaning: str
    fix: str
    function: Callable[[Any], None]

    def applies(self, component: Component) -> bool:
        """Tell whether the check applies to a component."""
        if self.kinds and component.kind not in self.kinds:
            return False
        declared = component.declares
        if (self.claim and not declared.get(self.claim)) or (self.unless and declared.get(self.unless)):
            return False
        return set(self.reads) <= set(component.reads) and (self.when is None or self.when(component))


_CHECKS: list[Check] = []


def check(
    *kinds: str,
    fix: str,
    name: str | None = None,
    reads: Iterable[str] = (),
    when: Callable[[Component], bool] | None = None,
    claim: str | None = None,
    unless: str | None = None,
    slow: bool = False,
    doctor: Literal["error", "warning"] | None = None,
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Turn a function into a check; its docstring states the claim and, below it, the meaning of a failure."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        summary, _, meaning = (inspect.getdoc(function) or "").partition("\n\n")
        _CHECKS.append(
            Check(
                name=name or function.__name__,
                kinds=kinds,
                reads=tuple(reads),
                when=when,
                claim=claim,
                unless=unless,
                slow=slow,
                doctor=doctor,
                summary=" ".join(summary.split()),
                meaning=" ".join(meaning.split()),
                fix=fix,
                function=function,
            )
        )
        return function

    return register


def checks(kind: str | None = None) -> tuple[Check, ...]:
    """Return the checks of a kind, or all of them, sorted by name.

    >>> "padding" in {check.name for check in checks("policy_loss")}
    True
    """
    from dovetail_kit.conformance import suites

    for module in pkgutil.iter_modules(suites.__path__):
        importlib.import_module(f"{suites.__name__}.{module.name}")
    found = [each for each in _CHECKS if kind is None or not each.kinds or kind in each.kinds]
    return tuple(sorted(found, key=lambda each: (each.name, each.kinds)))


def applicable(component: Component) -> tuple[Check, ...]:
    """Return the checks that apply to a component."""
    return tuple(each for each in checks(component.kind) if each.applies(component))
