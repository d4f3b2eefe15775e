"""Reward `math_dapo`: the answer on the line `Answer: ...`, or else in a box, right or wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._latex import bare, boxed_answer, same_answer, stated_answer
from dovetail_reward._numbers import Truth, spelled
from dovetail_reward._verl import boxed_in_dapo
from dovetail_reward.reward._minerva import minerva

_VERL_READS = 300
_VERL_READS_STRICT = 100
_INLINE = re.compile(r"\\[()]")
_SIDE = re.compile(r"(?<![\\\w])([a-zA-Z])\s*=")
_MIXED = re.compile(r"(?<=\d) +(\d+)/(\d+)\s*$")
_VERL_ANSWER = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)


@declares(
    range=(-1, 1),
    last_answer=True,
    examples=[({"completions": "Answer: 42", "answer": "42"}, {"completions": "Answer: 7", "answer": "42"})],
)
def math_dapo(
    completions: Sequence[str],
    answer: Sequence[Truth],
    *,
    strict_box_verify: bool = False,
    verl_compatible: bool = False,
) -> list[float | None]:
    r"""1.0 for the right answer, -1.0 for a wrong one or none.

    The answer is the last box after the last `Answer:` or `answer is:`, or without one the text there: a formula in
    `\[...\]` or `$$...$$` or else the rest of the line, or the next line with text; a remark in parentheses such as
    `(since 6 * 7 = 42)` at its end is left out. Without an `Answer:` it is the content of the last box. It is right if
    it is the same text as the right answer after both are normalised as in Minerva (Lewkowycz et al. 2022, listing 1:
    no units, articles or `\text`, `1,000` as `1000`) and as in MATH (see reward `math`), or the same number. Rewards of
    1 and -1 are equation 7 of Yu et al. 2025, *DAPO*.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        strict_box_verify: only a box counts, and its text must be the right answer's as it stands.
        verl_compatible: return verl's scores exactly, including the departures below.

    Departures:
        verl does not normalise the answer in a box, so that `\boxed{\dfrac12}` is wrong for `\frac{1}{2}` although
        `Answer: \frac12` is right; `42.` and `**42**` are wrong for 42. It finds `** 42` in `**Answer:** 42`,
        nothing in `**Answer**: 42`, and no box after the line of the `Answer:`. Of `$12$ or $13$` only the 12 counts,
        and of `x=1, x=2` only the 2. It reads only the last 300 characters (100 if strict), and neither `\fbox` nor
        `\boxed 42`. An answer of more than 1,000 characters is not read here.

    >>> math_dapo(["Answer: 42.", r"\boxed{42}", "42"], ["42"] * 3)
    [1.0, 1.0, -1.0]
    >>> math_dapo(["Answer: 42.", r"\boxed{42}", "42"], ["42"] * 3, verl_compatible=True)
    [-1.0, 1.0, -1.0]
    """
    if verl_compatible:
        right = _verl_right_strict if strict_box_verify else _verl_right
    else:
        right = _right_strict if strict_box_verify else _right
    return [
        None if truth is None else 1.0 if right(text, spelled(truth)) else -1.0
        for text, truth in zip(completions, answer, strict=True)
    ]


def _right(text: str, truth: str) -> bool:
    stated = stated_answer(text)
    guess = boxed_answer(text) if stated is None else stated
    if guess is None:
        return False
    return same_answer(guess, truth) or same_answer(_normal(guess), _normal(truth))


def _normal(answer: str) -> str:
    """Normalise as Minerva does, but `$1$ or $2$`, `x = 1, x = 2` and `3 1/2` are not the answers 1, 2 and 31/2."""
    answer = _INLINE.sub("$", bare(answer).replace(r"\$", ""))
    if answer.count("$") > 2:
        answer = answer.replace("$", "")
    sides = _SIDE.findall(answer)
    if len(sides) > 1 and len(set(sides)) == 1:
        answer = _SIDE.sub("", answer)
    return minerva(_MIXED.sub(r"\\frac{\1}{\2}", answer))


def _right_strict(text: str, truth: str) -> bool:
    return boxed_answer(text) == truth


def _verl_right(text: str, truth: str) -> bool:
    text = text[-_VERL_READS:]
    stated = _VERL_ANSWER.findall(text)
    return minerva(stated[-1]) == minerva(truth) if stated else boxed_in_dapo(text) == truth


def _verl_right_strict(text: str, truth: str) -> bool:
    return boxed_in_dapo(text[-_VERL_READS_STRICT:]) == truth
