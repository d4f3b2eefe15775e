"""What is claimed of samplers: a sweep can replay what they were asked and told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dovetail.errors import ConfigError
from dovetail_kit.conformance.case import global_generators
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

DRAWS, STEPS = 8, 100
FIRST = 2
MANY = 200
"""More proposals than any sampler has use for in so small a study."""
ENOUGH = 60
"""Draws of which all miss a third of a range once in 10^10 times."""


def open_study(subject: Subject, draws: int = DRAWS, seed: int = 0) -> Any:
    """Return a space, and a study of it."""
    from dovetail_lab.sweep import Distribution

    space = {
        "train.lr": Distribution("loguniform", (1e-5, 1e-2)),
        "policy_loss.ppo.epsilon_low": Distribution("uniform", (0.05, 0.4)),
        "train.epochs": Distribution("int", (1, 9)),
    }
    try:
        return space, subject.bind().open(space, draws=draws, seed=seed, total_steps=STEPS)
    except ConfigError as error:
        raise Inapplicable(f"it cannot be opened here: {error}") from error


def play_study(
    subject: Subject,
    draws: int = DRAWS,
    seed: int = 0,
    fails: Callable[[int], bool] = lambda number: number % 5 == 4,
    sign: float = 1.0,
) -> list[Any]:
    """Ask as long as there is something, and tell a result of each: one in five fails, the others prefer high rates, or
    low ones if `sign` is negative.
    """
    from dovetail_lab.kinds import Result

    _, study = open_study(subject, draws, seed)
    proposals: list[Any] = []
    while (proposal := study.ask()) is not None:
        number = len(proposals)
        if number == MANY:
            raise Failed(f"asked for {draws} settings, it proposes more than {MANY}")
        proposals.append(proposal)
        value = None if fails(number) else sign * math.log10(proposal.values["train.lr"])
        study.tell(number, Result(value=value, curve=() if value is None else ((1, value),)))
    return proposals


@check("sampler", fix="Draw from counters or from a generator that `seed` begins, and keep nothing outside the study.")
def replays(subject: Subject) -> None:
    """Opened, asked and told the same, it proposes the same: that is how a sweep that was killed goes on.

    A sweep that goes on would propose settings that do not belong to the results that it has.
    """
    if play_study(subject) != play_study(subject):
        raise Failed("the same questions and results gave other proposals the second time")
    if not subject.declared.get("systematic") and [each.values for each in play_study(subject, seed=1)] == [
        each.values for each in play_study(subject)
    ]:
        raise Failed("another seed gives the same settings")


@check("sampler", fix="Return values of every key, within its distribution, and None once there are no more draws.")
def stays_in_the_space(subject: Subject) -> None:
    """Each proposal has a value within its distribution for every key; with nothing told, it comes to an end.

    A value outside a range was excluded for a reason, and a sweep without an end is never reported.
    """
    space, _ = open_study(subject)
    for proposal in play_study(subject):
        if proposal.values.keys() != space.keys():
            raise Failed(f"it proposes values of {sorted(proposal.values)}, the space has {sorted(space)}")
        for key, form in space.items():
            low, high = form.arguments
            value = proposal.values[key]
            if not low <= value <= high or (form.form == "int" and type(value) is not int):
                raise Failed(f"it proposes {key} = {value!r}, which is not in {form}")
    _, study = open_study(subject)
    asked = sum(study.ask() is not None for _ in range(MANY))
    if asked != DRAWS:
        raise Failed(f"with no result told, it proposes {asked} settings of {DRAWS}")


@check("sampler", fix="Leave out results whose value is None; while there is no other, draw as at first.")
def goes_on_after_failures(subject: Subject) -> None:
    """It goes on, within the space, if the first two trials fail or are stopped early, or if all do.

    A result that failed and is kept as the best one so far is compared with every later one, which ends the sweep, or
    is never replaced.
    """
    space, _ = open_study(subject)
    for fails in (lambda number: number < FIRST, lambda number: True):
        proposals = play_study(subject, fails=fails)
        outside = [each for each in proposals if not all(space[key].allows(each.values[key]) for key in space)]
        if outside or not proposals:
            raise Failed(f"after failures it proposes {outside[0].values if outside else 'nothing'}")


@check("sampler", fix="Let what is asked depend on the number of draws only by where it ends.")
def begins_alike(subject: Subject) -> None:
    """What it proposes first does not depend on how many draws there are, so that a sweep can be extended.

    Otherwise the trials that a longer sweep is to share with a shorter one are run again, with other settings.
    """
    few, more = play_study(subject), play_study(subject, draws=DRAWS + 3)
    if [each.values for each in few[:DRAWS]] != [each.values for each in more[:DRAWS]]:
        raise Failed(f"of {DRAWS + 3} draws the first {DRAWS} are other ones than of {DRAWS}")


@check("sampler", fix="Draw from random.Random(seed), or from numpy.random.default_rng(seed), of the study's own.")
def leaves_global_generators_alone(subject: Subject) -> None:
    """It neither draws from nor seeds the generators that all of Python, or numpy, shares.

    Whatever else draws from them in between changes the settings, and a sweep that goes on gets others.
    """
    before = global_generators()
    play_study(subject)
    if global_generators() != before:
        raise Failed("a study changes the state of a global random number generator")


@check(
    "sampler",
    unless="systematic",
    fix="Draw with form.draw(...), or with form.at(u), where u is anywhere between 0 and 1.",
)
def reaches_both_ends(subject: Subject) -> None:
    """Of 60 proposals of a sampler that does not learn, some are in the lower third of every range, some in the upper.

    A range was given because the best value may be anywhere in it, and a part of it would never be tried.
    """
    if subject.bind().learns:
        raise Inapplicable("it learns, so that it may leave out what looks bad")
    space, study = open_study(subject, ENOUGH)
    asked = [each.values for _ in range(ENOUGH) if (each := study.ask()) is not None]
    for key, form in space.items():
        values = [values[key] for values in asked]
        ends = {
            "lower": any(value <= form.at(1 / 3) for value in values),
            "upper": any(value >= form.at(2 / 3) for value in values),
        }
        for end, reached in ends.items():
            if not reached:
                raise Failed(f"none of {len(values)} proposals of {key}, which is {form}, is in its {end} third")
