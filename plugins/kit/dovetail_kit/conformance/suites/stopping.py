"""Claims about early stopping: which trials a rule may end."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.errors import ConfigError
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows

HOPELESS = -100.0
LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
CROWD = 60
"""More trials than most rules wait for."""
MANY = ONE = 9
GRACE = re.compile(r"^(grace|grace_steps|min_steps|warmup_steps)$")


def asked(subject: Subject, curve: Any, others: Any) -> Any:
    """Return what a rule says of a trial beside others, in a run of 100 steps.

    Raises:
        Inapplicable: if it needs settings that are missing here.
    """
    offered = {"curve": curve, "others": others, "total_steps": 100}
    try:
        return subject.bind()(*(offered[name] for name in subject.component.reads))
    except ConfigError as error:
        raise Inapplicable(f"it cannot be asked here: {error}") from error


@check("early_stopping", fix="Judge by the arguments alone, and return a bool.")
def judges(subject: Subject) -> None:
    """It answers True or False, the same every time, changes none of its arguments, and never stops the only trial.

    A rule that judges a trial by its own curve declares absolute=True.
    """
    jagged = [(step, 0.001 * (step * 3 % 70)) for step in range(0, 120, 10)]  # sorted by value, it looks otherwise
    others = [[(step, 0.1 * trial - up) for step, up in jagged[: 2 * trial]] for trial in (3, 5, 1, 4, 2, 6)]
    curve = [(step, -up) for step, up in jagged[:6]]
    before = repr((curve, others))
    answers = [asked(subject, curve, others) for _ in range(2)]
    if not all(isinstance(answer, bool | np.bool_) for answer in answers) or answers[0] != answers[1]:
        raise Failed(f"asked twice, it answers {answers[0]!r} and {answers[1]!r}")
    if repr((curve, others)) != before:
        raise Failed("it changes its arguments")
    if asked(subject, curve, []) and not subject.declared.get("absolute"):
        raise Failed("it stops the only trial there is")


@check("early_stopping", unless="absolute", fix="Compare with the others at the same step: higher is better.")
def spares_the_best(subject: Subject) -> None:
    """It never stops a trial that is ahead of all others at every step that it has reached, or at all but the first.

    A young trial that is compared with what old ones have come to is stopped for its age.
    """
    others = [[(step, 0.001 * trial * step) for step in range(0, 100, 10)] for trial in range(1, 6)]
    for length, begin in itertools.product(range(1, 10), (1.0, 0.0, -1.0)):
        curve = [(step, 0.01 * step if step else begin) for step in range(0, 10 * length, 10)]
        if begin < 0 and length < MANY:  # an average remembers a bad start for a while
            continue
        if asked(subject, curve, others):
            raise Failed(
                f"after {10 * length} of 100 steps it stops a trial at {curve[-1][1]:g}, which is"
                " ahead of all others at that step"
            )


@check("early_stopping", unless="absolute", fix="Stop what is below, and not what is equal: curve < median.")
def spares_what_is_alike(subject: Subject) -> None:
    """Of trials that are all alike, as they are while no answer is right yet, it stops none.

    Each of them would be stopped for being no better than the others, and nothing would be left.
    """
    for figure in (0.0, 0.5):
        curve = [(step, figure) for step in range(0, 60, 10)]
        if asked(subject, curve, [list(curve) for _ in range(5)]):
            raise Failed(f"six trials have {figure:g} throughout, and it stops one of them")


@check(
    "early_stopping",
    when=lambda component: "patience" in component.params,
    fix="Compare the best of the last `patience` figures with the best before: max(last) <= max(earlier).",
)
def has_patience(subject: Subject) -> None:
    """With a number called `patience`, a trial whose best figure is its last but one is not stopped.

    Noise takes every curve down now and then: a rule that looks at the last figure alone stops most good trials.
    """
    if not isinstance(subject.params["patience"], int) or subject.params["patience"] < 2:
        raise Inapplicable("its patience is not a number of at least 2")
    others = [[(step, 0.0) for step in range(0, 100, 10)] for _ in range(4)]
    curve = [(10 * number, 0.1 * number) for number in range(8)]
    if asked(subject, [*curve, (80, 0.0)], others):
        raise Failed("it stops a trial that is ahead of all others, has risen from 0 to 0.7, and then has a single 0")


@check("early_stopping", fix="Compare with all of the others, in any order, at the step that the trial has reached.")
def stops_the_hopeless(subject: Subject) -> None:
    """A trial that stays far below 20 others is stopped somewhere, and the order of the others changes nothing.

    A rule that compares with the first of the others depends on which trial was begun first. One that is `absolute`
    need not stop a trial for the others' sake.
    """
    others = [[(step, 0.01 * (trial * 7 % 20) * step) for step in range(0, 101, 5)] for trial in range(20)]
    stopped = False
    for value in (HOPELESS, 0.3, 5.0):
        for length in range(1, 21):
            curve = [(step, value) for step in range(0, 5 * length, 5)]
            answers = {asked(subject, list(curve), [list(other) for other in order]) for order in _orders(others)}
            if len(answers) > 1:
                raise Failed(
                    f"a trial at {value:g} after {5 * length - 5} steps is stopped in one order of the others only"
                )
            stopped |= value == HOPELESS and answers == {True}
    if not stopped and not subject.declared.get("absolute") and not _is_stopped_later(subject):
        raise Failed(f"a trial that stays at {HOPELESS:g}, where 20 others are at 0 and above, is never stopped")


def _is_stopped_later(subject: Subject) -> bool:
    """Return whether a hopeless trial is stopped beside many others that are evaluated at every step."""
    others = [[(step, 0.01 * (trial * 7 % 20) * step) for step in range(101)] for trial in range(CROWD)]
    return _is_ever_stopped(subject, [(step, HOPELESS) for step in range(101)], others)


def _orders(others: list[Any]) -> tuple[list[Any], ...]:
    return others, others[::-1], others[7:] + others[:7]


@check(
    "early_stopping",
    fix="Take one figure of each trial, and compare with these. A rule that is to pool all figures declares"
    " expected_failures={'a_trial_has_one_vote': 'why'}.",
)
def a_trial_has_one_vote(subject: Subject) -> None:
    """Among trials whose figures never change, it makes no difference that some of them are evaluated five times as
    often.

    A rule that pools all figures follows those of the trials that have most, which are the oldest.
    """
    rarely, often = range(0, 101, 5), range(101)
    for place in np.arange(LEVELS[0] - 0.5, LEVELS[-1] + 1):
        for length in (3, 10, 20):
            curve = [(step, float(place)) for step in rarely[:length]]
            verdicts = {}
            for chosen, dense in (("no", ()), ("the best", LEVELS[4:]), ("the worst", LEVELS[:4])):
                others = [[(step, level) for step in (often if level in dense else rarely)] for level in LEVELS]
                verdicts[chosen] = bool(asked(subject, list(curve), others))
                if verdicts[chosen] != verdicts["no"]:
                    raise Failed(
                        f"beside eight trials at 1 to 8, a trial at {place:g} is {_verb(verdicts['no'])} after"
                        f" {curve[-1][0]} of 100 steps, and {_verb(verdicts[chosen])} where {chosen} four have five"
                        " times as many figures"
                    )


def _verb(stops: bool) -> str:
    return "stopped" if stops else "spared"


@check(
    "early_stopping",
    fix="Leave out what is -inf, or take a median or a rank, in which it is the worst; a mean or a deviation is lost.",
)
def bears_what_has_diverged(subject: Subject) -> None:
    """A figure that is not finite, which a curve has as -inf, ends in no error; one such trial among 21 others neither
    saves a hopeless trial nor has the best one stopped, and such a figure in its own curve does not save it either.

    A mean over trials is -inf, or NaN, from the first one on that diverges, and the rule stops nothing any more. From
    -inf a curve rises without end, to a rule that looks at how fast it rises.
    """
    others = [[(step, 0.01 * (trial * 7 % 20) * step) for step in range(0, 101, 5)] for trial in range(20)]
    level, best = (
        [(step, value + slope * step) for step in range(0, 101, 5)] for value, slope in ((HOPELESS, 0), (1, 1))
    )
    stops = _is_ever_stopped(subject, level, others)
    for where, broken in _diverged(others[-1]):
        beside = [*others, broken]
        for _, curve in _diverged(others[3]):
            asked(subject, curve, [list(other) for other in beside])
        if stops and not _is_ever_stopped(subject, level, beside):
            raise Failed(
                f"a trial that stays at {HOPELESS:g} is stopped beside 20 others, and is not once another one is -inf"
                f" {where}"
            )
        if not subject.declared.get("absolute") and _is_ever_stopped(subject, best, beside):
            raise Failed(f"beside 21 others, of which one is -inf {where}, it stops the best one")
    if not subject.declared.get("absolute"):
        _is_not_saved(subject, level, others)


def _is_not_saved(subject: Subject, level: Any, others: Any) -> None:
    """Complain if a trial is stopped, and is not where an earlier figure of its own is -inf."""
    worse = [(step, -math.inf if number == ONE else value) for number, (step, value) in enumerate(level)]
    for length in range(ONE + 3, len(level) + 1):
        verdicts = [asked(subject, curve[:length], [list(other) for other in others]) for curve in (level, worse)]
        if verdicts == [True, False]:
            raise Failed(
                f"a trial that stays at {HOPELESS:g} is stopped at step {level[length - 1][0]}, and not if its figure"
                f" at step {level[ONE][0]} was -inf"
            )


def _diverged(curve: Any) -> Iterator[tuple[str, Any]]:
    """Yield a curve that is not finite somewhere, and where."""
    steps = [step for step, _ in curve]
    for where, those in (
        ("at first", steps[:1]),
        ("in the middle", steps[9:11]),
        ("in the end", steps[-4:]),
        ("throughout", steps),
    ):
        yield where, [(step, -math.inf if step in those else value) for step, value in curve]


def _is_ever_stopped(subject: Subject, curve: Any, others: Any) -> bool:
    """Return whether a trial is stopped at some of its figures."""
    lengths = range(1, len(curve) + 1)
    return any(asked(subject, curve[:length], [list(other) for other in others]) for length in lengths)


def _graces(component: Component) -> list[str]:
    return [name for name in component.params if GRACE.search(name)]


@check(
    "early_stopping",
    when=lambda component: bool(_graces(component)),
    fix="Compare it with the step of the last figure, and not with how many figures there are.",
)
def grace_is_in_steps(subject: Subject) -> None:
    """With a number called `grace` or `min_steps` of 10, it stops at step 50 what it stops there with one of 0.

    Taken for a number of evaluations, it lasts longer the more rarely a run is evaluated.
    """
    others = [[(step, 0.1 + 0.001 * trial) for step in range(0, 101, 50)] for trial in range(8)]
    curve = [(0, HOPELESS), (50, HOPELESS)]
    for name in _graces(subject.component):
        verdicts = []
        for steps in (0, 10):
            if not allows(subject.component, name, steps) or not isinstance(subject.params[name], int):
                break
            verdicts.append(asked(Subject(subject.component, {**subject.given, name: steps}), curve, others))
        if verdicts == [True, False]:
            raise Failed(f"at step 50 it stops a hopeless trial with '{name}' = 0, and not with 10")
