"""Claims about sizes: of splits, whose examples a seed may not move, of episodes, and of metrics that are shares."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError
from dovetail.protocols import Turn
from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.clock import TooLong, limited
from dovetail_kit.conformance.given import GIVEN
from dovetail_kit.conformance.subject import Subject, allows, said_of
from dovetail_kit.conformance.suites.curricula import PROMPTS, SAMPLES, generator_of
from dovetail_kit.conformance.suites.data import MANY, SPLITS, first_of, task_of
from dovetail_kit.conformance.suites.episodes import TEXTS, begun
from dovetail_kit.conformance.suites.texts import REWARDS, is_pure, records_of, short, starts_processes

SIZE: Final = re.compile(rf"^(?:(?:n|num|most|max)_)?({'|'.join(SPLITS)})_(?:size|examples|records|count)$")
OF_EACH: Final = re.compile(r"\b(per|each|every)\b", re.IGNORECASE)
OF_TURNS: Final = re.compile(r"(^|_)(turns|steps|moves|guesses|rounds|attempts|tries)$")
MOST: Final = re.compile(r"^(max|most)_")
AT_MOST: Final = re.compile(r"\bat most\b|\bno more than\b", re.IGNORECASE)
WHATEVER_THE_SEED: Final = re.compile(
    r"[^.;]*\b(?:(?:whatever|not on|independent of|regardless of) the|same (?:for|with) (?:every|any|all)) seeds?\b"
    r"[^.;]*"
)
OF_SPLITS: Final = re.compile(r"\b(splits?|eval|evaluation|held[ -]out|train(ed|ing|s)?)\b", re.IGNORECASE)
SEEDS: Final = (0, 1, 2)
PATIENCE: Final = 10
"""Seconds of processor time for the splits of other seeds."""
SHARE: Final = re.compile(r"(^|[_/])(share|fraction|accuracy|precision|recall|success_rate|hit_rate|solve_rate)$")
OF_A_BELIEF: Final = re.compile(r"(^|[_/])precision$")
"""What a curriculum calls so may be one over the variance of what it believes of prompts, which has no upper bound."""
PERCENT: Final = re.compile(r"%|per ?cent", re.IGNORECASE)
ROUNDING: Final = 1e-6


@check("task", fix="Let `train_size` decide how many examples `train` has, and `eval_size` those of `eval`.")
def as_many_as_it_says(subject: Subject) -> None:
    """A split has no more examples than a number that is called for it, such as `eval_size`.

    With the size of another split an evaluation takes as long as an epoch, or training sees few examples.
    """
    for name, most in subject.params.items():
        found = SIZE.match(name)
        told = said_of(subject.component, name)
        if found and type(most) is int and most > 0 and not OF_EACH.search(told):
            count = len(task_of(subject).examples(found[1]))
            if count > most:
                raise Failed(f"'{name}' is {most}, and the split {found[1]} has {count} examples")


def _limits_of_turns(subject: Subject) -> Iterator[str]:
    """Yield the whole numbers that are the most turns of an episode, by their name or their line in the docstring."""
    for name, value in subject.params.items():
        told = said_of(subject.component, name)
        if type(value) is int and OF_TURNS.search(name) and (MOST.search(name) or AT_MOST.search(told)):
            yield name


@check("interaction", fix="Say done=True on the turn whose number, from 1 on, is the limit: count + 1 >= max_turns.")
def ends_on_its_last_turn(subject: Subject) -> None:
    """An episode that fails ends on the turn that a number called `max_turns` or the like allows, not on the one after.

    A policy that may guess four times is given a fifth, and every figure by number of turns is that of another game.
    """
    for name in _limits_of_turns(subject):
        longest = {limit: _longest(subject, name, limit) for limit in (3, 5) if allows(subject.component, name, limit)}
        if len(longest) > 1 and all(turns == limit + 1 for limit, turns in longest.items()):
            told = " and ".join(f"{turns} turns where '{name}' is {limit}" for limit, turns in longest.items())
            raise Failed(f"the longest episodes have {told}")


def _longest(subject: Subject, name: str, limit: int) -> int | None:
    """Return the turns of the longest of some episodes; None if the limit does not go with the other settings."""
    try:
        interaction: Any = Subject(subject.component, {**subject.given, name: limit}).bind()
        return max(_turns_of(interaction, text, 3 * limit) for text in TEXTS)
    except (DovetailError, Inapplicable, ValueError):
        return None


def _turns_of(interaction: Any, text: str, most: int) -> int:
    state, rng = begun(interaction, 0)
    for turn in range(most):
        step = interaction.step(state, Turn(text=text, number=turn), rng)
        if step.done:
            return turn + 1
        state = step.state
    return most


def _keeps_its_splits(component: Component) -> bool:
    """Tell whether a task has a seed, and its docstring says that this does not decide what is held out."""
    said = WHATEVER_THE_SEED.findall(" ".join(component.doc.split()))
    return "seed" in component.params and any(OF_SPLITS.search(sentence) for sentence in said)


@check(
    "task",
    when=_keeps_its_splits,
    fix="Choose the split by a hash of the question alone, and let the seed decide the order; or correct what the"
    " docstring says.",
)
def held_out_from_every_seed(subject: Subject) -> None:
    """If its docstring says that what is held out does not depend on the seed, no prompt of eval under one seed is
    trained on under another.

    A run that goes on with another seed would train on what it is evaluated with.
    """
    seeds = [seed for seed in SEEDS if allows(subject.component, "seed", seed)]
    prompts = dict[int, dict[str, set[str]]]()
    with suppress(DovetailError, ValueError, TooLong), limited(PATIENCE):
        for seed in seeds:
            task: Any = subject.bind(seed=seed)
            prompts[seed] = {
                split: {repr(each["prompt"]) for each in first_of(task.examples(split), 2 * MANY)} for split in SPLITS
            }
    if len(prompts) < 2:
        raise Inapplicable(f"its splits are not read for two seeds in {PATIENCE} seconds")
    for ours, theirs in itertools.permutations(prompts, 2):
        for split in ("train", "sft"):
            both = prompts[ours]["eval"] & prompts[theirs][split]
            if both:
                told = f"{len(both)} prompts of eval with seed = {ours} are in {split} with seed = {theirs}"
                raise Failed(f"{told}, such as {min(both)}")


@check(
    *REWARDS,
    "curriculum",
    when=is_pure,
    fix="Divide by as many as are counted, and not by another total; a metric in per cent says so in the docstring.",
)
def a_share_is_a_share(subject: Subject) -> None:
    """A metric called share, fraction, accuracy, precision, recall or the like is between 0 and 1, or NaN.

    A share of another total grows beyond 1, and its curve says that all is well.
    """
    if PERCENT.search(subject.component.doc):
        raise Inapplicable("its docstring speaks of per cent")
    believes = subject.component.kind == "curriculum"
    for where, metrics in _metrics(subject):
        for name in filter(SHARE.search, metrics):
            if believes and OF_A_BELIEF.search(name):
                continue
            values = np.asarray(metrics[name], float)
            seen = values[np.isfinite(values)]
            if seen.size and not (seen.min() >= -ROUNDING and seen.max() <= 1 + ROUNDING):
                raise Failed(f"{where} the metric '{name}' is {seen.max() if seen.max() > 1 else seen.min():.6g}")


def _metrics(subject: Subject) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the metrics of a component with the place where they were seen."""
    if subject.component.kind == "curriculum":
        yield from _of_a_curriculum(subject.bind())
        return
    records = records_of(subject)
    batches = [records, *([record] * 3 for record in records[: 1 if starts_processes(subject) else None])]
    for batch in batches:
        columns = [
            [record[read] if read in record else GIVEN[read](number, record) for number, record in enumerate(batch)]
            for read in subject.component.reads
        ]
        where = f"for {short(batch[0]['completions'])}" if len(batch) == 3 else f"for {len(batch)} completions"
        yield where, split_metrics(subject.bind()(*columns))[1]


def _of_a_curriculum(curriculum: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    state = curriculum.init(PROMPTS)
    for step in range(20):
        chosen = np.asarray(curriculum.choose(state, 3 + 6 * (step % 2), generator_of(step)))
        scores = (generator_of(step).random((len(chosen), SAMPLES)) < step / 20).astype(float)
        state, metrics = split_metrics(curriculum.update(state, chosen, scores))
        yield f"after {step + 1} steps", metrics
