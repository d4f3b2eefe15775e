"""Claims about what is chosen and kept: by curricula, replays, presets, and in sweeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, listing, nearest
from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.states import differing
from dovetail_kit.conformance.subject import Subject, longest
from dovetail_kit.conformance.suites.curricula import PROMPTS, SAMPLES, generator_of
from dovetail_kit.conformance.suites.replays import history_of
from dovetail_kit.conformance.suites.sweeps import DRAWS, open_study, play_study

ROUNDS = 200
LEARNT = 40
MANY_DRAWS = 24
IN_FLIGHT = (3, 4, 5)
"""Proposals that are asked for together, where as many always are."""
LESSONS = 20
RECORDS = 30
CLEAR = 0.02
ABREAST = 4


def _wandered(curriculum: Any, score: float, rounds: int) -> set[int]:
    """Return the prompts that come where every completion has this score."""
    state, seen = curriculum.init(PROMPTS), set()
    for step in range(rounds):
        chosen = np.asarray(curriculum.choose(state, 3, generator_of(step)))
        seen |= set(chosen.tolist())
        state, _ = split_metrics(curriculum.update(state, chosen, np.full((3, SAMPLES), score)))
    return seen


@check("curriculum", fix="Draw from the generator, or go on to the next prompts.")
def reaches_every_prompt(subject: Subject) -> None:
    """Every prompt comes in 200 steps, and as many more as its largest whole number, whether completions succeed or
    fail.

    A prompt that never comes is one that the dataset need not have had.
    """
    rounds = ROUNDS + longest(subject)
    seen = set().union(*(_wandered(subject.bind(), score, rounds) for score in (0.0, 1.0)))
    missing = sorted(set(range(PROMPTS)) - seen)
    if missing:
        raise Failed(f"of {PROMPTS} prompts {listing(map(str, missing))} never came in {rounds} steps")


@check("curriculum", fix="Leave scores that are NaN out: np.nanmean of those that have any; return what is learnt.")
def learns_from_scores_that_are_there(subject: Subject) -> None:
    """Its state, if it has one, changes; a missing score (NaN) makes nothing in it NaN that was a number.

    A NaN spreads over steps until every prompt is as likely as any other, or none.
    """
    curriculum: Any = subject.bind()
    first = state = curriculum.init(PROMPTS)
    everything = np.arange(PROMPTS)
    state, _ = split_metrics(curriculum.update(state, everything, np.full((PROMPTS, SAMPLES), 0.5)))
    some = np.full((PROMPTS, SAMPLES), 1.0)
    some[:, 0], some[2] = np.nan, np.nan
    after, _ = split_metrics(curriculum.update(state, everything, some))
    for name, array in after.items():
        if array.dtype.kind == "f" and (np.isnan(array) & ~np.isnan(state[name])).any():
            raise Failed(f"after scores of which some are NaN, '{name}' has NaN")
    few, _ = split_metrics(curriculum.update(first, everything[:3], some[:3]))  # as one that counts to the end sees it
    if first and not differing(after, first) and not differing(few, first):
        raise Failed("after updates with all prompts, and with three, its state is what it was at first")


@check("replay", fix="Put the groups whose scores differ into the buffer, and return them in a later step.")
def something_joins(subject: Subject) -> None:
    """In 40 steps whose groups have mixed scores, and as many more as the largest of its whole numbers, some group
    joins a later one.

    A buffer that nothing leaves costs memory and changes nothing.
    """
    if not any(earlier["mask"].any() for earlier, _ in history_of(subject)):
        raise Failed(f"nothing has joined in {len(history_of(subject))} steps")


@check("sampling_preset", fix="Name settings of `sampling` as they are spelt, with values that it allows.")
def sets_what_there_is(subject: Subject) -> None:
    """Its values are those of existing sampling settings, and within their ranges.

    A misspelt one would end every run that chooses the preset.
    """
    import attrs

    from dovetail.config.settings import Sampling

    known = [field.name for field in attrs.fields(Sampling) if field.name != "preset"]
    for name in subject.params:
        if name not in known:
            raise Failed(f"sampling has no setting '{name}'.{nearest(name, known)} Settings: {listing(known)}")
    try:
        Sampling(**subject.params)
    except (DovetailError, TypeError, ValueError) as error:
        raise Failed(str(error)) from error


@check("sampler", fix="Let the number of the draw enter into each draw.")
def tries_other_settings(subject: Subject) -> None:
    """Its proposals differ from one another, unless they go on with others, and its keys do not all rise together.

    A sweep that draws one number for all keys sees a line through the space.
    """
    fresh = [each.values for each in play_study(subject) if each.goes_on_with is None and each.copies is None]
    again = [number for number, values in enumerate(fresh) if values in fresh[:number]]
    if 2 * len(again) >= len(fresh) > 1:  # what keeps to the best setting may propose it again
        raise Failed(f"of {len(fresh)} proposals {len(again)} repeat an earlier one, such as {dict(fresh[again[0]])}")
    space, study = open_study(subject)
    asked = [study.ask().values for _ in range(DRAWS)]
    lr, epsilon, *_ = (sorted(range(DRAWS), key=lambda number: asked[number][key]) for key in space)
    if lr in (epsilon, epsilon[::-1]):
        raise Failed(
            f"in {DRAWS} proposals, {' and '.join([*space][:2])} are in the same order, or in the opposite one"
        )


@check("sampler", fix="Draw `loguniform` by the logarithm: exp(uniform(log low, log high)), or form.draw(...).")
def draws_rates_by_their_logarithm(subject: Subject) -> None:
    """Of 24 proposals, with no result told, one at least is in the lower third of a learning rate's logarithmic range.

    Drawn evenly between 1e-5 and 1e-2, nine rates of ten are above 1e-3, and the small ones are never tried.
    """
    space, study = open_study(subject, MANY_DRAWS)
    key, form = next((key, form) for key, form in space.items() if form.form == "loguniform")
    low, high = form.arguments
    asked = [each.values[key] for _ in range(MANY_DRAWS) if (each := study.ask()) is not None]
    if not asked:
        raise Failed(f"asked for {MANY_DRAWS} settings, it proposes none")
    if min(asked) > low * (high / low) ** (1 / 3):
        raise Failed(f"of {MANY_DRAWS} proposals of {key}, which is {form}, the lowest is {min(asked):.3g}")


@check("curriculum", fix="Let what `update` has learnt decide what `choose` draws.")
def chooses_by_what_it_learns(subject: Subject) -> None:
    """If its state depends on the scores, so do its choices.

    A curriculum that keeps scores and draws at random looks like one in every record, and is none.
    """
    curriculum: Any = subject.bind()
    first = np.arange(PROMPTS) < PROMPTS // 2
    rising = np.linspace(0.0, 1.0, LESSONS)[:, None]
    levels = (np.where(first, 1.0, 0.0), np.where(first, 0.5, 1.0), np.where(first, 0.0, 0.5), 0.0 * first)
    courses = (np.where(first, rising, 0.0), np.where(first, 1.0, rising), np.where(first, 1.0 - rising, rising))
    histories = (*(np.tile(rates, (LESSONS, 1)) for rates in levels), *courses)
    states = [_taught(curriculum, rates) for rates in histories]
    if not any(differing(states[0], other) for other in states[1:]):
        raise Inapplicable("its state does not depend on the scores")
    drawn = [
        [np.asarray(curriculum.choose(state, 3, generator_of(seed))).tolist() for seed in range(ROUNDS)]
        for state in states
    ]
    if all(each == drawn[0] for each in drawn):
        raise Failed(f"in {ROUNDS} draws it chooses the same, whatever the scores of the prompts were")


def _taught(curriculum: Any, history: np.ndarray) -> Any:
    """Return the state after steps in each of which these shares of the completions of each prompt succeed."""
    state = curriculum.init(PROMPTS)
    for rates in history:
        scores = np.arange(SAMPLES) < SAMPLES * rates[:, None]
        state, _ = split_metrics(curriculum.update(state, np.arange(PROMPTS), scores.astype(float)))
    return state


def _climbed(subject: Subject, sign: float, at_once: int) -> float:
    """Return the mean height of the later proposals where the results rise or fall with all settings; so many settings
    are asked for before their results are told.
    """
    from dovetail_lab.kinds import Result

    space, study = open_study(subject, LEARNT)
    heights: list[float] = []
    while len(heights) < LEARNT:
        asked = [proposal for _ in range(at_once) if (proposal := study.ask()) is not None]
        if not asked:
            break
        for proposal in asked:
            places = []
            for key, form in space.items():
                low, high = (np.log(x) if form.form.startswith("log") else float(x) for x in form.arguments)
                value = proposal.values[key]
                places.append(((np.log(value) if form.form.startswith("log") else value) - low) / (high - low))
            heights.append(float(np.mean(places)))
        for number in range(len(heights) - len(asked), len(heights)):
            value = sign * heights[number]
            study.tell(number, Result(value=value, curve=((1, value),)))
    return float(np.mean(heights[LEARNT // 2 :]))


def _learns(component: Component) -> bool:
    return getattr(component.load(), "learns", False)


@check("sampler", when=_learns, slow=True, fix="Higher is better.")
def learns_upwards(subject: Subject) -> None:
    """What it proposes late is higher where high settings do well than where low ones do, also where several trials run
    at once.

    A sampler that follows the worst result, or takes a trial's result for that of the newest one, tries everything but
    what the sweep is looking for.
    """
    for at_once in (1, ABREAST):
        up, down = (_climbed(subject, sign, at_once) for sign in (1.0, -1.0))
        if up < down - CLEAR or (at_once > 1 and up < down):
            raise Failed(
                f"on a scale of 0 to 1, with {at_once} trials at a time, late proposals are at {up:.3g} where high"
                f" settings do well, and at {down:.3g} where low ones do"
            )


@check("sampler", when=_learns, slow=True, fix="Ask whether it is None: `if result.value is not None`.")
def zero_is_a_value(subject: Subject) -> None:
    """A result of exactly 0 counts as much as one a millionth above it, among lower results and among higher ones.

    The accuracy of a run that learns nothing is 0, and `if result.value:` takes it for a failure.
    """
    for others in (-1.0, 1.0):
        zero, near = (_learnt(subject, value, others) for value in (0.0, 1e-6))
        for one, other in zip(zero, near, strict=True):
            if not all(math.isclose(one[key], other[key], rel_tol=1e-2) for key in one.keys() & other.keys()):
                raise Failed(
                    f"after a result of 0, the others about {others:g}, it proposes {one}; after 1e-6, {other}"
                )


@check("sampler", when=_learns, slow=True, fix="Compare with results that have a value, and replace what has none.")
def learns_after_a_failure(subject: Subject) -> None:
    """If what it proposes depends on the results, it does so also where the first trial failed.

    A failure that is kept as the best so far, as NaN or as infinity, is never replaced: nothing beats it.
    """

    def course(failures: int, sign: float) -> list[Any]:
        proposals = play_study(subject, LEARNT, fails=lambda number: number < failures, sign=sign)
        return [each.values for each in proposals]

    (up, down), (up_after, down_after) = ([course(failures, sign) for sign in (1.0, -1.0)] for failures in (0, 1))
    if up != down and up_after == down_after:
        raise Failed(
            f"where the first trial failed, {LEARNT} proposals are the same whatever the results of the others"
        )


def _learnt(subject: Subject, value: float, others: float) -> list[dict[str, float]]:
    """Return what is proposed after one result with a value, and others about another value."""
    from dovetail_lab.kinds import Result

    _, study = open_study(subject, LEARNT)
    for number in range(MANY_DRAWS):
        if study.ask() is None:
            raise Inapplicable(f"it proposes {number} settings")
        told = value if number == MANY_DRAWS // 2 else others * (1 + number / MANY_DRAWS)
        study.tell(number, Result(value=told, curve=((1, told),)))
    asked = [study.ask() for _ in range(LEARNT - MANY_DRAWS)]
    return [proposal.values if proposal else {} for proposal in asked]


def _after(subject: Subject, best: int, together: int) -> list[Any]:
    """Return what is proposed after results of which one is better than the others.

    Args:
        subject: the sampler.
        best: the number of the proposal with that result.
        together: how many are asked for before their results are told, the last one first, as several workers do.
    """
    from dovetail_lab.kinds import Result

    _, study = open_study(subject, LEARNT)
    for first in range(0, MANY_DRAWS, together):
        numbers = range(first, first + together)
        for number in numbers:
            if study.ask() is None:  # before more results are told
                raise Inapplicable(f"it proposes {number} settings before it is told a result")
        for number in reversed(numbers):
            value = float(number == best)
            study.tell(number, Result(value=value, curve=((1, value),)))
    asked = [study.ask() for _ in range(LEARNT - MANY_DRAWS)]
    return [proposal and proposal.values for proposal in asked]


@check("sampler", when=_learns, slow=True, fix="Keep what was proposed by its number: results come in any order.")
def results_belong_to_their_proposals(subject: Subject) -> None:
    """If it matters which proposal did well, it matters also where some are asked for before the first is told.

    Workers run several trials at a time: a result that is taken for the newest proposal's draws the sweep to settings
    that nobody has tried.
    """
    one_by_one, some = ([_after(subject, best, together) for best in IN_FLIGHT] for together in (1, len(IN_FLIGHT)))
    if all(each == one_by_one[0] for each in one_by_one):
        raise Inapplicable(f"a single good result among {MANY_DRAWS} does not move it")
    if all(each == some[0] for each in some):
        raise Failed(f"with {len(IN_FLIGHT)} trials at a time, it goes on the same whichever of {IN_FLIGHT} did well")
