"""Broken rewards, managers and sinks: they lose signs, letters, rows and columns, and count what is absent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_answers import PAIRS, numbers, paid
from tests.kit.conformance.mutants_manners import _Any

import dovetail
from dovetail_model.spec import Layer, Rope

TAGGED = ({"completions": "<answer>42</answer>", "answer": "42"}, {"completions": "<answer>7</answer>", "answer": "42"})


@caught_by("reward", "signs_and_fractions")
@paid
def digits_alone(completions, answer):
    pairs = zip(completions, answer, strict=True)
    return [float(numbers(text)[-1:] == numbers(str(truth))[-1:] != []) for text, truth in pairs]


@caught_by("reward", "signs_and_fractions")
@paid
def cuts_to_whole_numbers(completions, answer):
    found = [re.findall(r"-?\d+(?:\.\d+)?", text[:1000]) for text in completions]
    return [
        float([int(float(x)) for x in each[-1:]] == [int(truth)]) for each, truth in zip(found, answer, strict=True)
    ]


@caught_by("reward", "words_of_all_letters")
@dovetail.declares(range=(0, 1), examples=[TAGGED])
def strips_its_tag(completions, answer):
    pairs = zip(completions, answer, strict=True)
    return [float(text.strip("<answer/>") == str(truth)) for text, truth in pairs]


@caught_by("reward", "a_wrong_answer_is_scored")
@dovetail.declares(range=(0, 1), examples=PAIRS)
def has_no_score_without_a_number(completions, answer):
    found = [numbers(text) for text in completions]
    return [float(each[-1] == str(truth)) if each else None for each, truth in zip(found, answer, strict=True)]


@caught_by("reward", "however_many")
@paid
def scores_in_parts(completions, answer):
    found = []
    for start in range(0, len(completions), 256):
        part = completions[start : start + 256]
        found += [float(numbers(text)[-1:] == [str(truth)]) for text, truth in zip(part, answer, strict=False)]
    return found


@caught_by("reward", "the_prompt_is_no_answer")
@paid
def goes_on_where_the_prompt_ends(completions, prompts, answer):
    texts = [f"{prompt} {text}" for prompt, text in zip(prompts, completions, strict=True)]
    return [float(numbers(text)[-1:] == [str(truth)]) for text, truth in zip(texts, answer, strict=True)]


@caught_by("reward", "examples_of_its_docstring")
@paid
def says_something_else(completions, answer):
    """1.0 if the last number is the answer.

    >>> says_something_else(["6"], ["6"])
    [2.0]
    """
    pairs = zip(completions, answer, strict=True)
    return [float(numbers(text)[-1:] == [str(truth)]) for text, truth in pairs]


del says_something_else  # pytest would collect its example


@caught_by("reward_manager", "a_mean_of_what_is_given")
@attrs.frozen(kw_only=True)
class DividesByAll:
    def __call__(self, score_table, reward_names):
        total = np.nansum(score_table, axis=1) / len(reward_names)
        return np.where(np.isnan(score_table).all(axis=1), np.nan, total)


@right("reward_manager")
@attrs.frozen(kw_only=True)
class TheMeanOfWhatIsGiven:
    """The mean of the rewards that did not abstain, of score_table and reward_names."""

    def __call__(self, score_table: Any, reward_names: tuple[str, ...]) -> Any:
        there = (~np.isnan(score_table)).sum(axis=1)
        return np.where(there > 0, np.nansum(score_table, axis=1) / np.maximum(there, 1), np.nan)


@attrs.define
class _Table:
    """An open sink that writes a header with the first record, and then the figures of each."""

    file: Path
    begun: bool = False

    def write(self, step, metrics):
        with self.file.open("a") as file:
            if not self.begun:
                print("step", *metrics, sep=",", file=file)
            print(step, *metrics.values(), sep=",", file=file)
        self.begun = True

    def close(self):
        pass


@caught_by("sink", "names_what_it_writes")
@attrs.frozen(kw_only=True)
class TheHeaderOfTheFirst:
    def open(self, folder, total_steps, start_step):
        return _Table(folder / "table.csv")


@caught_by("sink", "repeats_nothing")
@attrs.frozen(kw_only=True)
class GoesOnBehindTheLastLine:
    def open(self, folder, total_steps, start_step):
        return _Table(folder / "table.csv", begun=start_step > 0)


@caught_by("curriculum", "scores_of_their_prompts")
@attrs.frozen(kw_only=True)
class ScoresOfTheSorted(_Any):
    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        rate, known = state["rate"].copy(), ~np.isnan(scores).all(axis=1)
        rate[np.sort(chosen)[known]] = np.nanmean(scores[known], axis=1)
        return {"rate": rate}


@caught_by("curriculum", "no_score_is_no_failure")
@attrs.frozen(kw_only=True)
class AbsentIsFailed(_Any):
    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        rate = state["rate"].copy()
        rate[chosen] = np.nan_to_num(scores).mean(axis=1)
        return {"rate": rate}


@caught_by("curriculum", "counts_for_long")
@attrs.frozen(kw_only=True)
class CountsInEightBits(_Any):
    def init(self, examples: int) -> Any:
        return {"rate": np.full(examples, 0.5), "drawn": np.zeros(examples, np.int8)}

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        drawn = state["drawn"].copy()
        np.add.at(drawn, chosen, 1)
        return {"rate": state["rate"], "drawn": drawn}


@caught_by("replay", "goes_on_taking_in")
@attrs.frozen(kw_only=True)
class FullForEver:
    groups: int = 1

    def init(self, empty: Any) -> Any:
        return {name: array[None] for name, array in empty.items()}

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        earlier = {name: state[name].copy() for name in fresh}
        kept = earlier if earlier["mask"].any() else {name: array[:1].copy() for name, array in fresh.items()}
        return earlier, kept


@caught_by("architecture", "reads_its_config")
def of_one_base(config):
    spec = dovetail.get("architecture", "llama")(config)
    return attrs.evolve(spec, layers=(Layer(Rope(theta=10_000.0)),) * len(spec.layers))
