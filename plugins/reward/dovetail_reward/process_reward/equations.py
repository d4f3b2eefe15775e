"""Process reward `equations`: credit for each correct calculation in a completion."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dovetail.registry import declares
from dovetail_reward._equations import find_equations


@declares(
    examples=[
        ({"completions": "3 + 4 = 7, so the answer is 7"}, {"completions": "3 + 4 = 8, so the answer is 8"}),
        ({"completions": "<<48/2=24>>24"}, {"completions": "<<48/2=26>>26"}),
    ]
)
def equations(
    completions: Sequence[str],
    ends: Sequence[Sequence[int]],
    *,
    right: float = 1.0,
    wrong: float = -1.0,
) -> tuple[list[list[float]], dict[str, list[float]]]:
    """Credit for each equation between numbers, at the token that ends it.

        r_t = ∑_{e ends at t} ( `right` if e holds else `wrong` )

    An equation consists of the two sides of an `=`, if these are numbers with `+ - * / ( )` (also `− · × ÷`, and `x`
    between numbers) and at least one operator: `3 + 4 = 7`, the annotations in GSM8K's solutions (Cobbe et al. 2021,
    *Training Verifiers to Solve Math Word Problems*, section 2), `<<48/2=24>>`, and both equations in
    `2 * 3 + 4 = 6 + 4 = 10`. It is evaluated exactly: `10 / 3 = 3.33` holds, since 3.33 is rounded to two decimal
    places, and `10 / 3 = 3` does not. `$`, `%` and thousands separators are understood. A repeated equation counts
    once. Anything with a variable, a power or a unit gives zero rather than -1, because it may only have been misread.

    In contrast to a score for the whole outcome, this tells which lines were wrong. It is a process reward computed by
    a rule, as opposed to a model (Lightman et al. 2023, *Let's Verify Step by Step*). Estimators that read
    `token_rewards` (`gae`, `reinforce_plus_plus`) assign the credit where it was earned; those that read `scores`
    (`grpo`) see the sum over the completion.

    The sum grows with the number of equations, so that a policy may learn to write many easy ones; `right = 0.0` only
    penalises mistakes.

    Args:
        completions: texts without special tokens.
        ends: for each completion, the length of its text in characters up to and including each of its tokens.
        right: the reward for an equation that holds.
        wrong: the reward for an equation that does not hold; one with a division by zero never holds.

    Returns:
        For each completion, a number per token; and the metrics `count`, the number of equations in a completion, and
        `right`, the fraction of them that hold, for completions that have any.

    >>> equations(["1+1=2, 2+2=5"], [[1, 3, 5, 7, 12]])[0]
    [[0.0, 0.0, 1.0, 0.0, -1.0]]
    """
    values, counts, shares = [], [], []
    for text, of_tokens in zip(completions, ends, strict=True):
        credit, seen = [0.0] * len(of_tokens), {}
        for each in find_equations(text):
            spelt = "".join(each.text.split())
            if spelt not in seen:
                seen[spelt] = each.holds
                credit[_token_at(each.end, of_tokens)] += right if each.holds else wrong
        values.append(credit)
        counts.append(float(len(seen)))
        shares.append(sum(seen.values()) / len(seen) if seen else math.nan)
    return values, {"count": counts, "right": shares}


def _token_at(length: int, ends: Sequence[int]) -> int:
    """Return the first token from which on the text has at least this length.

    Lengths need not increase: while a multi-byte character is incomplete, each of its tokens decodes to a replacement
    character, so that the text may temporarily be longer.
    """
    short = np.flatnonzero(np.asarray(ends) < length)
    return min(int(short[-1]) + 1 if len(short) else 0, len(ends) - 1)
