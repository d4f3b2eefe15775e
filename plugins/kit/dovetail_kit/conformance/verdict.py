"""Run one check on one component, and describe the outcome."""

from __future__ import annotations

from typing import Literal

import attrs

from dovetail.registry import place_of
from dovetail.registry.places import first_line, raised_in
from dovetail_kit.conformance.check import Check, Failed, Inapplicable
from dovetail_kit.conformance.subject import Subject

Outcome = Literal["passed", "failed", "known", "skipped"]


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of a check, with the figures seen or the reason; `known` is a failure that the component declares."""

    outcome: Outcome
    seen: str = ""


def judge(check: Check, subject: Subject) -> Verdict:
    """Run a check on a component and return the outcome; exceptions count as failures."""
    reason = subject.declared.get("expected_failures", {}).get(check.name)
    try:
        check.function(subject)
    except Inapplicable as why:
        return Verdict(outcome="skipped", seen=str(why))
    except Exception as error:
        if reason is not None:
            return Verdict(outcome="known", seen=f"declared: {reason}")
        return Verdict(outcome="failed", seen=_seen(error, subject))
    if reason is not None:
        return Verdict(
            outcome="failed",
            seen=f"it passes, but is declared as an expected failure ({reason!r}): remove the declaration",
        )
    return Verdict(outcome="passed")


def report(check: Check, subject: Subject, verdict: Verdict) -> str:
    """Return a report of a failed check: the claim, the figures seen, their meaning, and how to fix the component."""
    component = subject.component
    lines = [f"{component.label} of {component.origin.distribution} {component.origin.version} fails '{check.name}'"]
    lines += [f"  claimed: {check.summary}", f"  seen:    {verdict.seen}"]
    lines += [f"  means:   {check.meaning}"] if check.meaning else []
    lines += [f"  fix:     {check.fix}", f"  where:  {place_of(component.load())}"]
    return "\n".join(lines)


def _seen(error: Exception, subject: Subject) -> str:
    if isinstance(error, Failed):
        return str(error)
    return f"{first_line(error)}{raised_in(subject.component.load(), error)}"
