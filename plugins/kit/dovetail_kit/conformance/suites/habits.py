"""Claims about what is chosen and kept: by curricula, replays, sinks, presets, and in sweeps."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, listing, nearest
from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.states import differing
from dovetail_kit.conformance.subject import Subject, longest
from dovetail_kit.conformance.suites.curricula import PROMPTS, SAMPLES, generator_of
from dovetail_kit.conformance.suites.data import OF_SOME, opened
from dovetail_kit.conformance.suites.elsewhere import JOURNAL
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


def left_by(
    subject: Subject, records: list[tuple[int, dict[str, float]]], total: int = 6
) -> tuple[str, dict[str, bytes]]:
    """Return what a sink has printed and written after records of a run, but for the place where it wrote."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        folder = Path(place, "run")
        folder.mkdir()
        lines = [json.dumps({"phase": "rl", "step": step} | figures) for step, figures in records]
        (folder / JOURNAL).write_text("".join(f"{line}\n" for line in lines))  # which a sink may read
        with contextlib.redirect_stderr(printed):
            sink = opened(subject, folder, total, 0)
            for step, figures in records:
                sink.write(step, dict(figures))
            sink.close()
        written = [path for path in folder.rglob("*") if path.is_file() and path.name != JOURNAL]
        files = {str(path.relative_to(folder)): path.read_bytes().replace(place.encode(), b"") for path in written}
    return printed.getvalue().replace(place, ""), files


@check(
    "sink",
    unless="elsewhere",
    fix="Write each record when it comes, or gather them until close(); declare newest_only=True if that is meant."
    f"{OF_SOME}",
)
def keeps_every_record(subject: Subject) -> None:
    """What is left after six records is not what is left after the last of them alone, unless declared newest_only.

    A curve of which only the last point is left shows nothing.
    """
    if subject.declared.get("newest_only"):
        raise Inapplicable("it declares newest_only")
    records = [
        (step, {"reward/mean": step / 7, "loss": 2.0 - step / 5, "eval/accuracy": step / 9}) for step in range(1, 7)
    ]
    if left_by(subject, records) == left_by(subject, records[-1:]):
        raise Failed("it leaves the same after six records as after the last one alone")


@check(
    "sink",
    unless="elsewhere",
    fix=f"Write each figure as the float that it is, and the step that it belongs to.{OF_SOME}",
)
def tells_records_apart(subject: Subject) -> None:
    """Other figures, or the same ones of other steps, leave something else.

    Figures that are cut to whole numbers, or rows without their step, look well-formed and say nothing.
    """
    names = ("reward/mean", "loss", "eval/accuracy", "kl/mean", "entropy/mean")

    def records(shift: float, later: int, slope: float = 0.01) -> list[tuple[int, dict[str, float]]]:
        return [(step + later, dict.fromkeys(names, shift + slope * step)) for step in range(1, RECORDS + 1)]

    before = left_by(subject, records(0.0, 0))
    if left_by(subject, records(0.3, 0)) == before:
        raise Failed("it leaves the same whether figures are 0.01 to 0.3 or 0.31 to 0.6")
    if left_by(subject, records(0.123, 0, 0.0)) == left_by(subject, records(0.123, 0, 1e-4)):
        raise Failed("it leaves the same whether figures are 0.123 throughout, or rise by 0.0001 from step to step")
    if left_by(subject, records(0.0, 2)) == before:
        raise Failed(f"it leaves the same for the steps 1 to {RECORDS} and for the steps 3 to {RECORDS + 2}")


@check(
    "sink",
    unless="elsewhere",
    fix=f"Take what each record has; a zero is a figure, and a name may come later.{OF_SOME}",
)
def takes_what_each_record_has(subject: Subject) -> None:
    """A figure that is zero is told from one that is absent, and one that the first record lacked is written too.

    Most steps have no evaluation, and an accuracy of zero is what some begin with.
    """
    names = ("reward/mean", "eval/accuracy", "entropy/mean")
    before: dict[str, float] = {"loss": 0.5}

    def left(*later: dict[str, float]) -> Any:
        return left_by(subject, [(1, before), *((2 + number, before | each) for number, each in enumerate(later))])

    low, high = (left(dict.fromkeys(names, figure)) for figure in (0.25, 0.75))
    if low == high:
        raise Failed(f"it leaves the same whatever the figures of {listing(names)} are, which the first record lacks")
    if left(dict.fromkeys(names, 0.0)) == left({}):
        raise Failed(f"it leaves the same whether {listing(names)} are zero or absent")


@check(
    "sink", unless="elsewhere", fix="Pass over the figure alone that cannot be written: continue, not break or return."
)
def a_nan_hides_nothing_else(subject: Subject) -> None:
    """What stands in a record beside a figure that is NaN or infinite is written as it is without that.

    A loss is NaN in the very steps in which the other curves say why.
    """

    def left(worst: float, figure: float) -> Any:
        others = {
            name: figure + 0.01 * number for number, name in enumerate(("reward/mean", "kl/mean", "eval/accuracy"))
        }
        return left_by(subject, [(1, {"loss": 0.5}), (2, {"loss": worst, **others}), (3, {"loss": worst, **others})])

    if left(0.25, 0.75) == left(0.25, 0.5):
        raise Inapplicable("it writes the same whatever these figures are")
    for worst in (np.nan, np.inf):
        if left(worst, 0.75) == left(worst, 0.5):
            raise Failed(f"where the loss is {worst}, it leaves the same whatever the figures after it are")


@check("sink", unless="elsewhere", fix="Write names with the figures, or the columns anew where a name is new.")
def names_what_it_writes(subject: Subject) -> None:
    """A figure that the first record lacked is not written under another's name, or under none.

    Rows with more cells than the header of their table are read as other columns, or not at all.
    """
    first, later = {"loss": 0.5}, {"eval/zeugma": 0.8125, "loss": 0.25}
    printed, files = left_by(subject, [(1, first), (2, later)])
    texts = [printed, *(content.decode(errors="ignore") for content in files.values())]
    for text in texts:
        if "0.8125" in text and "zeugma" not in text and "loss" in text:
            raise Failed("the second record has eval/zeugma = 0.8125: the number is written, and the name is not")


@check("sink", unless="elsewhere", fix="Make what an open sink remembers in open(), anew for each run.")
def forgets_other_runs(subject: Subject) -> None:
    """What it leaves of a run names no figure of another run of the same process.

    The trials of a sweep share a process, and a default that is one object for all would show each trial those before.
    """
    left_by(subject, [(1, {"loss": 0.5, "eval/zeugma": 0.25})])
    printed, files = left_by(subject, [(1, {"loss": 0.5})])
    if "zeugma" in printed or any(b"zeugma" in content for content in files.values()):
        raise Failed("after a run with the figure eval/zeugma it leaves that name of one without it, too")


@check("sink", unless="elsewhere", fix="Write whole numbers in full: repr(value), or a format with 17 digits.")
def counts_in_full(subject: Subject) -> None:
    """In its files a count of eight digits is not that of the next number.

    Six digits are enough for a loss. Of the tokens so far they are not: `%g` writes 12345678 as 1.23457e+07.
    """

    def files(tokens: float) -> dict[str, bytes]:
        return left_by(subject, [(step, {"loss": 0.5, "tokens/total": tokens + step}) for step in range(1, 4)])[1]

    count = 12345677.0
    if files(count) != files(3 * count) and files(count) == files(count + 1):
        raise Failed("it writes the same whether tokens/total ends with 12345680 or with 12345681")


@check("sink", unless="elsewhere", fix="Write digits that count: repr(value), or a format with `g`; do not round().")
def small_figures_in_full(subject: Subject) -> None:
    """In its files a learning rate of 1.25e-07 is not one of 2.5e-07.

    Rounded to six decimals both are zero, and so is the loss of what has all but converged.
    """

    def files(lr: float) -> dict[str, bytes]:
        return left_by(subject, [(step, {"loss": 0.5, "lr": lr}) for step in range(1, 4)])[1]

    if files(0.125) != files(0.25) and files(1.25e-7) == files(2.5e-7):
        raise Failed("it writes the same whether lr is 1.25e-07 or 2.5e-07")


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
