"""Reward `exact_match`: 1 if the answer is right, for evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, last_answer
from dovetail_reward._numbers import Truth, number, spelled


@declares(
    abstains=True,
    range=(0, 1),
    last_answer=True,
    examples=[
        ({"completions": "<answer>42</answer>", "answer": "42"}, {"completions": "<answer>7</answer>", "answer": "42"})
    ],
)
def exact_match(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """1.0 if the right answer is between the answer's tags, otherwise 0.0.

    The last closed pair of tags counts. The answer must be the same text, apart from surrounding white space, or the
    same number: `$1,234.`, `1234` and `1234.0` are equal.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        answer_start, answer_end: the tags, taken literally.

    >>> exact_match(["<answer>1,234</answer>", "<answer> Paris </answer>", "1234"], [1234, "Paris", 1234])
    [1.0, 1.0, 0.0]
    """
    return [
        None if truth is None else _right(last_answer(text, answer_start=answer_start, answer_end=answer_end), truth)
        for text, truth in zip(completions, answer, strict=True)
    ]


def _right(guess: str | None, truth: str | float) -> float:
    if guess is None:
        return 0.0
    expected = spelled(truth)
    value = number(guess)
    return float(guess.strip() == expected.strip() or (value is not None and value == number(expected)))
