"""Reward `check_numbers`: whether the first number in the answer is the right one."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, first_answer
from dovetail_reward._numbers import Truth, first_number, number, spelled


@declares(
    abstains=True,
    range=(0, 1.5),
    examples=[
        ({"completions": "<answer>42</answer>", "answer": "42"}, {"completions": "<answer>7</answer>", "answer": "42"})
    ],
)
def check_numbers(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """1.5 if the first number after the first opening tag of an answer is the right one, otherwise 0.0.

    It requires no other tag, so that a completion which broke the format, or was cut off, may still earn it. From the
    GSM8K demonstration of tunix.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        answer_start, answer_end: the tags, taken literally.

    Departures:
        tunix also reads past the closing tag; here the answer ends there. tunix uses the first run of digits and
        periods: it reads `-5` as 5, `1,234` as 1, and in `... 5` only the dots; here these are -5, 1234 and 5.

    >>> check_numbers(["<answer>42 apples</answer>", "<answer>It is $42", "42"], ["42", "42", "42"])
    [1.5, 1.5, 0.0]
    """
    return [
        None if truth is None else _points(first_answer(text, answer_start=answer_start, answer_end=answer_end), truth)
        for text, truth in zip(completions, answer, strict=True)
    ]


def _points(guess: str | None, truth: str | float) -> float:
    value = None if guess is None else first_number(guess)
    return 1.5 if value is not None and value == number(spelled(truth)) else 0.0
