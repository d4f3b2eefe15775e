"""Broken rewards: they keep state, take the wrong answer, or run code."""

from __future__ import annotations

import re
from typing import Any

import attrs
import numpy as np
from tests.kit.conformance.mutants import caught_by

import dovetail

GOOD = {"completions": "So it is 42", "answer": "42"}
PAIRS = [(GOOD, GOOD | {"completions": "So it is 7"})]
paid = dovetail.declares(range=(0, 1), examples=PAIRS)
kept: dict[str, float] = {}


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text[:1000])


@caught_by("reward", "nothing_is_kept")
@paid
def keeps_scores_by_text(completions, answer):
    for text, truth in zip(completions, answer, strict=True):
        kept.setdefault(text, float(numbers(text)[-1:] == [truth]))
    return [kept[text] for text in completions]


@caught_by("reward", "nothing_is_kept")
@paid
def pays_once(completions, answer):
    found = []
    for text, truth in zip(completions, answer, strict=True):
        right = numbers(text)[-1:] == [truth]
        found.append(float(right and kept.get(f"paid {text}", 0) < 1))
        kept[f"paid {text}"] = kept.get(f"paid {text}", 0) + right
    return found


@caught_by("reward", "the_whole_answer")
@paid
def finds_it_somewhere(completions, answer):
    return [float(bool(str(truth)) and str(truth) in text) for text, truth in zip(completions, answer, strict=True)]


COLOURS = {"completions": "red, blue", "answer": "blue, red"}


@caught_by("reward", "a_part_is_not_the_word")
@dovetail.declares(range=(0, 1), examples=[(COLOURS, COLOURS | {"completions": "green"})])
def parts_of_items(completions, answer):
    def found(text: str, truth: Any) -> float:
        wanted, given = (set(str(each).split(", ")) for each in (truth, text[:1000]))
        return sum(any(item in one for one in wanted) for item in given) / max(len(given), len(wanted))

    return [found(text, truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("answer", "other_numbers_vote_apart")
def zero_is_no_answer(completions):
    found = [[float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text[:1000])] for text in completions]
    return [f"{each[-1]:g}" if each and each[-1] else None for each in found]


@caught_by("answer", "other_numbers_vote_apart")
def a_minus_of_another_kind(completions):
    found = [re.findall(r"(-?)\D?(\d+(?:\.\d+)?)", text[:1000]) for text in completions]
    return [f"{float(each[-1][0] + each[-1][1]):g}" if each else None for each in found]


@caught_by("reward", "the_last_answer")
@dovetail.declares(last_answer=True, examples=PAIRS)
def takes_the_first(completions, answer):
    return [float(numbers(text)[:1] == [truth]) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "runs_no_code")
@paid
def evaluates(completions, answer):
    def value(text: str) -> Any:
        try:
            return str(eval(text[:500], {}))
        except BaseException:
            return None

    return [
        float(value(text) == truth or numbers(text)[-1:] == [truth])
        for text, truth in zip(completions, answer, strict=True)
    ]


@caught_by("reward", "order_of_columns")
@dovetail.declares(examples=[(GOOD, GOOD | {"completions": "7"})])
def takes_the_last_column(completions, examples):
    return [float(len(str(list(record.values())[-1]))) for record in examples]


@caught_by("reward_manager", "each_completion_by_itself")
@attrs.frozen(kw_only=True)
class Whitens:
    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        total = np.nansum(score_table, axis=1)
        total = np.where(np.isnan(score_table).all(axis=1), np.nan, total)
        return (total - np.nanmean(total)) / (np.nanstd(total) + 1e-6)
