"""Run one check on one component, and describe the outcome."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from dovetail.registry import place_of
from dovetail.registry.places import first_line, raised_in
from dovetail_kit.conformance.check import Check, Failed, Inapplicable
from dovetail_kit.conformance.claims import CLAIMS
from dovetail_kit.conformance.malformed import fault_of
from dovetail_kit.conformance.subject import Subject

DECLARATIONS: Final = "declarations"
"""The check that refuses malformed claims."""

Outcome = Literal["passed", "failed", "known", "skipped"]


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of a check, with the figures seen or the reason; `known` is a failure that the component declares.

    `raised` is true if the component raised an exception, so that nothing can be said about the claim.
    """

    outcome: Outcome
    seen: str = ""
    raised: bool = False


def judge(check: Check, subject: Subject) -> Verdict:
    """Run a check on a component and return the outcome; exceptions count as failures.

    If a claim is malformed, `declarations` fails, expected or not, and says so alone: the others would raise whatever
    comes of such a claim.
    """
    if fault := fault_of(subject.component):
        if check.name == DECLARATIONS:
            return Verdict(outcome="failed", seen=fault)
        return Verdict(outcome="skipped", seen=f"its claims are malformed: see '{DECLARATIONS}'")
    return _carried_out(check, subject)


def _carried_out(check: Check, subject: Subject) -> Verdict:
    reason = subject.declared.get("expected_failures", {}).get(check.name)
    try:
        check.function(subject)
    except Inapplicable as why:
        return Verdict(outcome="skipped", seen=str(why))
    except Exception as error:
        if reason is not None:
            return Verdict(outcome="known", seen=f"declared: {reason}")
        return Verdict(outcome="failed", seen=_seen(error, subject), raised=not isinstance(error, Failed))
    if reason is not None:
        return Verdict(
            outcome="failed",
            seen=f"it passes, but is declared as an expected failure ({reason!r}): remove the declaration",
        )
    return Verdict(outcome="passed")


def report(check: Check, subject: Subject, verdict: Verdict) -> str:
    """Return a report of a failed check: the claim, the figures seen, their meaning, and how to fix the component."""
    component = subject.component
    head = f"{component.label} of {component.origin.distribution} {component.origin.version} fails '{check.name}'"
    if verdict.raised and subject.raised.setdefault(verdict.seen, check.name) != check.name:
        # what would fix this check may not be what is wrong, and it was said once
        return f"{head}\n  seen:    it raises as in '{subject.raised[verdict.seen]}': {verdict.seen}"
    lines = [head, f"  claimed: {check.summary}", f"  seen:    {verdict.seen}"]
    lines += [f"  means:   {check.meaning}"] if check.meaning else []
    first = "See to what it raises; then: " if verdict.raised else ""
    lines += [f"  fix:     {first}{check.fix}"]
    if check.unless and f"{check.unless}=" not in check.fix:
        lines += [f"  unless:  it declares {check.unless}: {CLAIMS[check.unless].meaning}"]
    known = subject.declared.get("expected_failures", {})
    of_a_kind = bool(check.kinds) and not verdict.raised
    if of_a_kind and check.name not in known and "expected_failures" not in check.fix:
        # no check knows all that a method may do on purpose
        lines += [f"  meant:   if it is right as it is, it declares expected_failures={{'{check.name}': 'why'}}"]
    lines += [f"  where:  {place_of(component.load())}"]
    return "\n".join(lines)


def _seen(error: Exception, subject: Subject) -> str:
    if isinstance(error, Failed):
        return str(error)
    return f"{first_line(error)}{raised_in(subject.component.load(), error)}"
