"""Reward `check_answer`: points for an answer in the right format, by how close it is to the right one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, REASONING_END, REASONING_START, answer_in_format
from dovetail_reward._numbers import Truth, number, spelled


@declares(
    abstains=True,
    range=(-1, 3),
    examples=[
        (
            {"completions": "<reasoning>6·7</reasoning><answer>42</answer>", "answer": "42"},
            {"completions": "<reasoning>6·7</reasoning><answer>7</answer>", "answer": "42"},
        )
    ],
)
def check_answer(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    reasoning_start: str = REASONING_START,
    reasoning_end: str = REASONING_END,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """Points for the answer, by how close it is to the right one.

        0     no format as in `match_format_exactly`
        3     the text between the answer's tags is the right answer
        1.5   it is, apart from white space around it
        0.5   it is a number within 10 % of the right one: 0.9 ≤ guess / truth ≤ 1.1
        0.25  within 20 %
        -1    another number
        -0.5  not a number, or the right answer is not one

    From the GSM8K demonstration of tunix.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        reasoning_start, reasoning_end, answer_start, answer_end: the tags, taken literally.

    Departures:
        Numbers may be written as `$1,234.` or `50%`; tunix treats these as text, and subtracts half a point. If the
        right answer is zero there is no ratio: a guess of zero counts as within 10 %, any other as a wrong number;
        tunix treats both as text. `nan` and `inf` are not numbers here, but wrong numbers in tunix.

    >>> texts = [f"<reasoning>6·7</reasoning><answer>{a}</answer>" for a in ("42", " 42", "40", "35", "7", "x")]
    >>> check_answer([*texts, "42"], ["42"] * 7)
    [3.0, 1.5, 0.5, 0.25, -1.0, -0.5, 0.0]
    """
    tags = {
        "reasoning_start": reasoning_start,
        "reasoning_end": reasoning_end,
        "answer_start": answer_start,
        "answer_end": answer_end,
    }
    return [
        None if truth is None else _points(answer_in_format(completion, **tags), spelled(truth))
        for completion, truth in zip(completions, answer, strict=True)
    ]


def _points(guess: str | None, truth: str) -> float:
    if guess is None:
        return 0.0
    if guess == truth:
        return 3.0
    if guess.strip() == truth.strip():
        return 1.5
    return _points_of_number(number(guess), number(truth))


def _points_of_number(guess: Decimal | None, truth: Decimal | None) -> float:
    if guess is None or truth is None:
        return -0.5
    ratio = 1.0 if guess == truth else _ratio(float(guess), float(truth))
    if 0.9 <= ratio <= 1.1:
        return 0.5
    return 0.25 if 0.8 <= ratio <= 1.2 else -1.0


def _ratio(guess: float, truth: float) -> float:
    return guess / truth if truth else math.inf
