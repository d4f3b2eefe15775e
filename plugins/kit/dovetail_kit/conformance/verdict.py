"""Carry out one check on one component, and say in words what came of it."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Literal

import attrs

from dovetail.registry import place_of
from dovetail_kit.conformance.check import Check, Failed, Inapplicable
from dovetail_kit.conformance.subject import Subject

Outcome = Literal["passed", "failed", "known", "skipped"]


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of a check, with what was seen or why; `known` is a failure that the component declares."""

    outcome: Outcome
    seen: str = ""


def judge(check: Check, subject: Subject) -> Verdict:
    """Carry out a check."""
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
    """Say what failed, what that means and how to fix it."""
    component = subject.component
    lines = [f"{component.label} of {component.origin.distribution} {component.origin.version} fails '{check.name}'"]
    lines += [f"  claimed: {check.summary}", f"  seen:    {verdict.seen}"]
    lines += [f"  means:   {check.meaning}"] if check.meaning else []
    lines += [f"  fix:     {check.fix}", f"  where:  {place_of(component.load())}"]
    return "\n".join(lines)


def _seen(error: Exception, subject: Subject) -> str:
    if isinstance(error, Failed):
        return str(error)
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first}{_raised_at(error, subject)}"


def _raised_at(error: Exception, subject: Subject) -> str:
    """Return the last line of the component's own folder that led to an error; empty if there is none."""
    try:
        folder = Path(inspect.getfile(inspect.unwrap(subject.component.load()))).parent
    except TypeError:  # a builtin
        return ""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if folder in Path(frame.filename).parents]
    return f" [{own[-1].filename}:{own[-1].lineno}]" if own else ""
