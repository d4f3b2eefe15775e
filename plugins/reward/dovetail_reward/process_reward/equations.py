"""Process reward `equations`: every calculation that a completion writes down is right or wrong by itself."""

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

    An equation is what stands on the two sides of an `=`, where these are numbers with `+ - * / ( )` (also `− · × ÷`,
    and `x` between numbers) and there is something to work out: `3 + 4 = 7`, the annotations of GSM8K's solutions
    (Cobbe et al. 2021, *Training Verifiers to Solve Math Word Problems*, section 2), `<<48/2=24>>`, and both of
    `2 * 3 + 4 = 6 + 4 = 10`. It is worked out exactly, so that `10 / 3 = 3.33` holds as a number rounded to two
    decimal places and `10 / 3 = 3` does not. `$`, `%` and commas between thousands are read. An equation that a
    completion repeats counts once. Whatever has a variable, a power or a unit in it is left alone: it gives nothing,
    rather than -1 for what was only misread.

    Where the outcome of a completion is one number, this says which of its lines were wrong: a process reward by rule,
    as against one by a model (Lightman et al. 2023, *Let's Verify Step by Step*). Estimators that read `token_rewards`
    (`gae`, `reinforce_plus_plus`) place the credit where it was earned; those that read `scores` (`grpo`) see its sum
    over the completion.

    The sum grows with the number of equations: a policy may learn to write many easy ones. `right = 0.0` punishes
    mistakes and pays for nothing.

    Args:
        completions: texts without special tokens.
        ends: for each completion how many characters of its text there are up to and with each of its tokens.
        right: for an equation that holds.
        wrong: for one that does not; a division by zero never does.

    Returns:
        For each completion a number for each of its tokens; and the metrics `count`, equations of a completion, and
        `right`, the share of them that hold, of the completions that have any.

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
    """Return the token with which a text has reached a length for good.

    A text may be longer for a moment, where the bytes of a character come in several tokens, each of which stands for
    a character as long as the others are missing.
    """
    short = np.flatnonzero(np.asarray(ends) < length)
    return min(int(short[-1]) + 1 if len(short) else 0, len(ends) - 1)
