"""Reward `repetition`: a penalty for sequences of tokens that a completion repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge

from dovetail.registry import declares


@declares(
    expected_failures={"tokens_count": "many tokens are as good as few if no sequence of them occurs twice"},
    range=(-1, 0),
    examples=[({"completions": "6 times 7 is 42"}, {"completions": "6 times 7 is " + "7 times 6 is " * 20})],
)
def repetition(tokens: Sequence[Sequence[int]], *, ngram: Annotated[int, Ge(1)] = 20) -> list[float | None]:
    """The share of a completion's n-grams that occurred before in it, as a penalty.

        r = -(1 - U / N),  N = |y| - n + 1

    with U the number of different sequences of n tokens among the N in the completion; 0 if it has fewer than n tokens.
    A completion that falls into a loop comes close to -1. The share of different n-grams is the measure of Li et al.
    2016, *A diversity-promoting objective function for neural conversation models* (distinct-n). Yeo et al. 2025,
    *Demystifying long chain-of-thought reasoning in LLMs*, appendix C.2, penalise repetition because a reward that
    grows with the length can be had by it. The size of the penalty is a weight of the reward manager,
    `reward_manager.weighted_sum.weights = {'repetition': 0.1}`.

    Args:
        tokens: ids of the policy's tokens, y.
        ngram: n, in tokens. 20 are about a sentence; few tokens, such as 3, also repeat in good mathematics.

    Returns:
        A score between -1 and 0.

    Departures:
        TRL's `get_repetition_penalty_reward`, with n = 3 by default, multiplies by its `max_penalty`, which is a weight
        here. Open R1's of that name counts words instead of tokens, in lower case. Yeo et al. penalise the repeated
        tokens themselves instead of the completion.

    >>> repetition([[1, 2, 1, 2, 1], [1, 2, 3]], ngram=2)
    [-0.5, 0.0]
    """
    return [_penalty(ids, ngram) for ids in tokens]


def _penalty(ids: Sequence[int], ngram: int) -> float:
    count = len(ids) - ngram + 1
    if count < 1:
        return 0.0
    different = {tuple(ids[start : start + ngram]) for start in range(count)}
    return len(different) / count - 1.0
