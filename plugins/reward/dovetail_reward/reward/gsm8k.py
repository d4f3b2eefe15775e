"""Reward `gsm8k`: the number after `####`, as GSM8K's own solutions end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from dovetail.registry import declares
from dovetail_reward._numbers import Truth, last_number, leading_number, number, spelled

_MARK = re.compile(r"####+(?:\\(?:boxed|text|[(\[$])|[*_$€£{]|[^\S\n])*")
_LONGEST = 1000
"""Characters after a `####` that are read."""
_VERL_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_VERL_FLEXIBLE = re.compile(r"-?[0-9.,]+")
_VERL_READS = 300
"""The number of characters at the end of a completion that verl reads."""


@declares(
    abstains=True,
    range=(0, 1),
    last_answer=True,
    examples=[({"completions": "#### 42", "answer": "42"}, {"completions": "#### 7", "answer": "42"})],
)
def gsm8k(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    method: Literal["strict", "flexible"] = "strict",
    format_score: float = 0.0,
    verl_compatible: bool = False,
) -> list[float | None]:
    r"""1.0 for the right number in the right place, `format_score` for another number there, 0.0 for none.

    The right place is after the last `####` that a number follows on the same line, between them at most a sign of a
    currency, asterisks, `$` or `\boxed{` (`strict`), or the last number of the completion (`flexible`). Numbers are
    compared by value; `1/2` and `1:30` are not 1. Solutions end like this in Cobbe et al. 2021, *Training verifiers to
    solve math word problems*. The scores are those of verl but for the departures below.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        method: `strict` or `flexible`: where the number must be.
        format_score: the score of a wrong number in the right place.
        verl_compatible: return verl's scores exactly, including the departures below.

    Departures:
        verl compares text: `72.`, `72.0`, `$72`, `.5` and `−5` are wrong answers there and so is, if flexible, `1,234`
        for 1234; a right answer written `1,234` cannot be matched if strict. It reads only the last 300 characters, so
        that white space at the end can make a right answer wrong. It reads the hyphen in `10-3` as a sign and `,` as a
        number that earns the `format_score`, `1/2` and `1:30` as 1, and `1,00,000` as 100000; and it requires exactly
        one space, and nothing such as `**`, `€` or `\boxed{`, between `####` and the number.

    >>> gsm8k(["6·7 is\n#### 42.", "#### 41", "It is 42"], ["42"] * 3, format_score=0.1)
    [1.0, 0.1, 0.0]
    >>> gsm8k(["#### 42.", "#### 42"], ["42"] * 2, verl_compatible=True)
    [0.0, 1.0]
    """
    points = _verl_points if verl_compatible else _points
    return [
        None if truth is None else points(text, spelled(truth), method, format_score)
        for text, truth in zip(completions, answer, strict=True)
    ]


def _points(text: str, truth: str, method: str, format_score: float) -> float:
    guess = last_number(text) if method == "flexible" else _marked(text)
    if guess is None:
        return 0.0
    return 1.0 if guess == number(truth) else format_score


def _marked(text: str) -> Decimal | None:
    for mark in reversed(list(_MARK.finditer(text))):
        line = text[mark.end() : mark.end() + _LONGEST].partition("\n")[0]
        value = leading_number(line)
        if value is not None:
            return value
    return None


def _verl_points(text: str, truth: str, method: str, format_score: float) -> float:
    text = text[-_VERL_READS:]
    if method == "strict":
        found = [match.replace(",", "") for match in _VERL_STRICT.findall(text)]
    else:
        found = _VERL_FLEXIBLE.findall(text)
        found = [*found[:1], *(match for match in found if match != ".")]
    if not found:
        return 0.0
    return 1.0 if found[-1] == truth else format_score
