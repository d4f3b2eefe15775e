"""Reward `close_answer`: 1 if the answer is nearly right, for evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated

from annotated_types import Ge

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, last_answer
from dovetail_reward._numbers import Truth, number, spelled


@declares(
    abstains=True,
    range=(0, 1),
    examples=[
        ({"completions": "<answer>40</answer>", "answer": "42"}, {"completions": "<answer>7</answer>", "answer": "42"})
    ],
)
def close_answer(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    tolerance: Annotated[float, Ge(0)] = 0.1,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """1.0 if the number between the answer's tags is close to the right one, otherwise 0.0.

        |guess - truth| ≤ tolerance · |truth|

    The last closed pair of tags counts, as in `exact_match`, and every answer that passes `exact_match` also passes
    this reward. If the right answer is not a number, the guess must be the same text, apart from surrounding white
    space.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        tolerance: the largest relative error; 0.1 is 10 %.
        answer_start, answer_end: the tags, taken literally.

    >>> close_answer([f"<answer>{a}</answer>" for a in ("42", "40", "46.3", "-42", "many")], ["42"] * 5)
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """
    return [
        None
        if truth is None
        else _close(last_answer(text, answer_start=answer_start, answer_end=answer_end), spelled(truth), tolerance)
        for text, truth in zip(completions, answer, strict=True)
    ]


def _close(guess: str | None, truth: str, tolerance: float) -> float:
    if guess is None:
        return 0.0
    value, expected = number(guess), number(truth)
    if value is None or expected is None:
        return float(guess.strip() == truth.strip())
    return float(value == expected or _within(value, expected, tolerance))


def _within(value: Decimal, expected: Decimal, tolerance: float) -> bool:
    error = abs(float(value) - float(expected))
    return math.isfinite(error) and error <= tolerance * abs(float(expected))
