"""Reward `near_miss`: numbers that are nearly right are worth something."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated

import dovetail
from annotated_types import Gt

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dovetail.declares(
    range=(0, 1),
    examples=[
        (
            {"completions": "<answer>42</answer>", "answer": "42"},
            {"completions": "<answer>40</answer>", "answer": "42"},
        ),
        ({"completions": "it is 40", "answer": "42"}, {"completions": "who knows", "answer": "42"}),
    ],
)
def near_miss(
    completions: Sequence[str],
    answer: Sequence[object],
    *,
    width: Annotated[float, Gt(0)] = 5.0,
) -> list[float | None]:
    """1 for the right number, falling off with the distance; 0 where there is none.

        r = exp( -|guess - answer| / w )

    The last number of a completion counts. Where the answer is not a number, the reward abstains.

    Args:
        completions: texts without special tokens.
        answer: the dataset column of that name, numbers or texts that are numbers.
        width: w, the distance at which 37 % of the reward is left.

    >>> [round(r, 2) for r in near_miss(["is 42", "3, no, 41", "0", "none"], ["42", 42, 0, 42], width=2.0)]  # exp(-½)
    [1.0, 0.61, 1.0, 0.0]
    >>> near_miss(["42"], ["1 or " + "9" * 300])  # 300 digits are no answer
    [None]
    """
    return [_score(text, truth, width) for text, truth in zip(completions, answer, strict=True)]


def _score(text: str, truth: object, width: float) -> float | None:
    right = _last_number(str(truth)) if truth is not None else None
    guess = _last_number(text)
    if right is None:
        return None
    return 0.0 if guess is None else math.exp(-abs(guess - right) / width)


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    # a number of so many digits is not a guess, and as a float it would be infinite
    return float(found[-1]) if found and len(found[-1]) < 300 else None
