"""Reward `math`: the boxed answer, as MATH compares it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._latex import boxed_answer, same_answer
from dovetail_reward._numbers import Truth, spelled
from dovetail_reward._verl import boxed_in_math, hendrycks


@declares(
    range=(0, 1),
    examples=[
        (
            {"completions": r"\boxed{\dfrac12}", "answer": r"\frac{1}{2}"},
            {"completions": r"\boxed{2}", "answer": r"\frac{1}{2}"},
        )
    ],
)
def hendrycks_math(
    completions: Sequence[str], answer: Sequence[Truth], *, verl_compatible: bool = False
) -> list[float | None]:
    r"""1.0 if the last box of a completion holds the right answer, otherwise 0.0.

    An answer is right if it is the same text in the normal form of Hendrycks et al. 2021, *Measuring mathematical
    problem solving with the MATH dataset* (`\dfrac12`, `1/2` and `\frac{1}{2}` are equal, `x=5` is 5; degrees, white
    space and a unit at the end, in `\text{...}`, are ignored), or a number with the same value. Other equivalent forms,
    such as `2/4` and `1/2` or `1+x^2` and `x^2+1`, do not match; use `math_verify` for these.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers, without their box, text or numbers; where it is None the
            reward abstains.
        verl_compatible: return verl's scores exactly, including the departures below.

    Departures:
        verl does not accept `1,000` or `1{,}000` for 1000, `yes` for `\text{yes}`, `50%` for 50, or `x^{2}` for `x^2`.
        It removes the unit of `5\text{ cm}` but not of `5 \text{cm}`, and everything else after the first `\text{ `,
        so that `2.5\text{ million}` is 2.5; `-\frac{1}{2}` is not `-1/2`. It does not read `\fbox`, and prefers any
        `\boxed 4` to a `\boxed{2}`, even to a later one. An answer of more than 1,000 characters is not read here.

    >>> hendrycks_math([r"So $\boxed{\dfrac12}$.", r"\boxed{2}", "1/2"], ["1/2"] * 3)
    [1.0, 0.0, 0.0]
    >>> hendrycks_math([r"\boxed{1,000}"], [1000]), hendrycks_math([r"\boxed{1,000}"], [1000], verl_compatible=True)
    ([1.0], [0.0])
    """
    right = _verl_right if verl_compatible else _right
    return [
        None if truth is None else float(right(text, spelled(truth)))
        for text, truth in zip(completions, answer, strict=True)
    ]


def _right(text: str, truth: str) -> bool:
    guess = boxed_answer(text)
    return guess is not None and same_answer(guess, truth)


def _verl_right(text: str, truth: str) -> bool:
    guess = boxed_in_math(text)
    if guess is None:
        return False
    try:
        return hendrycks(guess) == hendrycks(truth)
    except ValueError:
        return guess == truth
