"""Reward `geo3k`: a boxed answer after reasoning in its tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import attrs
from annotated_types import Ge, Gt, Interval

from dovetail.registry import declares
from dovetail_reward._latex import boxed_answer, same_answer, same_scale
from dovetail_reward._numbers import Truth, number, spelled
from dovetail_reward._verl import boxed_in_dapo
from dovetail_reward.reward._equivalence import equal, need_library

THINK_START: Final = "<think>"
THINK_END: Final = "</think>"

_FRACTION = re.compile(r"-?(?:\d+/\d+|\\[dt]?frac\{-?\d+\}\{\d+\})")


@declares(
    range=(0, 1),
    examples=[
        (
            {"completions": r"<think>3·8/2</think> \boxed{12}", "answer": "12"},
            {"completions": r"\boxed{24}", "answer": "12"},
        )
    ],
)
@attrs.frozen(kw_only=True)
class Geo3k:
    r"""The right answer in a box, and a little for the format: r = (1 - c)·right + c·format.

    `right` is 1 if the last box holds the right answer, up to typography (see reward `math`) or mathematically (see
    reward `math_verify`, whose library it needs: the extra `math`). `format` is 1 if the completion begins with
    reasoning in its tags, followed by a box. From verl's scorer of Geometry3K, with c = 0.1.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, without their box, text or numbers; where it is None the
            reward abstains.
        format_score: c, in units of reward.
        reasoning_start, reasoning_end: the tags, taken literally.
        time_limit: seconds for one comparison; one that takes longer is worth 0.0.
        processes: comparisons at a time; None is one for each core that the run may use.
        verl_compatible: follow the rules of verl's grader, mathruler, where they differ.

    Raises:
        ConfigError: on construction, if the library is not installed.

    Departures:
        mathruler counts a fraction that can be reduced as wrong and, if the right answer is an integer, anything that
        is not written as one, such as `10^{3}` or `xyz=5`. It compares sets in order, and does not read `\fbox` or
        `\boxed 42`; an empty box is right if the right answer is empty. `verl_compatible` applies these rules before
        the library.

    >>> texts = [r"<think>so</think> \boxed{\frac{2}{4}}", r"\boxed{1/2}", r"<think>so</think> \boxed{2}", "1/2"]
    >>> Geo3k()(texts, [r"\frac{1}{2}"] * 4)
    [1.0, 0.9, 0.1, 0.0]
    >>> Geo3k(verl_compatible=True)(texts, [r"\frac{1}{2}"] * 4)
    [0.1, 0.9, 0.1, 0.0]
    """

    format_score: Annotated[float, Interval(ge=0, le=1)] = 0.1
    reasoning_start: str = THINK_START
    reasoning_end: str = THINK_END
    time_limit: Annotated[float, Gt(0)] = 5.0
    processes: Annotated[int, Ge(1)] | None = None
    verl_compatible: bool = False

    def __attrs_post_init__(self) -> None:
        """Check that the library is installed."""
        need_library()

    def __call__(self, completions: Sequence[str], answer: Sequence[Truth]) -> list[float | None]:
        """Return one score per completion."""
        truths = [None if truth is None else spelled(truth) for truth in answer]
        find = boxed_in_dapo if self.verl_compatible else boxed_answer
        right = [False] * len(completions)
        unsure: dict[int, tuple[str, str]] = {}
        for i, (text, truth) in enumerate(zip(completions, truths, strict=True)):
            guess = find(text)
            known = False if guess is None or truth is None else self._known(guess, truth)
            if known is None:
                unsure[i] = (rf"\boxed{{{guess}}}", f"{truth}")
            else:
                right[i] = known
        found = equal(list(unsure.values()), time_limit=self.time_limit, processes=self.processes)
        for i, same in zip(unsure, found, strict=True):
            right[i] = same
        return [
            None if truth is None else self._score(text, same)
            for text, truth, same in zip(completions, truths, right, strict=True)
        ]

    def _known(self, guess: str, truth: str) -> bool | None:
        """Return whether an answer is right, without using the library; None if the library must decide."""
        if same_answer(guess, truth) or (self.verl_compatible and guess.strip() == truth.strip()):
            return True
        if not guess.strip() or (_ruled_out(guess, truth) if self.verl_compatible else not same_scale(guess, truth)):
            return False
        return None

    def _score(self, text: str, right: bool) -> float:
        share = self.format_score
        # As in decimal arithmetic: 0.9, not 1 - 0.1 in binary.
        return round((1 - share) * right + share * self._formatted(text), 12)

    def _formatted(self, text: str) -> bool:
        if not text.startswith(self.reasoning_start):
            return False
        reasoned = text.find(self.reasoning_end, len(self.reasoning_start))
        boxed = text.find(r"\boxed{", reasoned + len(self.reasoning_end)) if reasoned >= 0 else -1
        return boxed >= 0 and text.find("}", boxed) >= 0


def _ruled_out(guess: str, truth: str) -> bool:
    """Whether mathruler rejects an answer without asking its algebra system."""
    if _FRACTION.fullmatch(guess) and _FRACTION.fullmatch(truth):
        return True
    return _is_integer(guess) != _is_integer(truth) or truth.startswith(r"\{")


def _is_integer(answer: str) -> bool:
    value = number(answer)
    return value is not None and value == value.to_integral_value()
