"""Metrics over several samples of a prompt: pass@k and maj@k."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased estimate, from n samples, of the probability that at least one of k samples is correct.

    pass@k = 1 - C(n-c, k) / C(n, k). Chen et al. 2021, *Evaluating large language models trained on code*, equation 1.

    Args:
        n: the number of samples of one prompt.
        correct: c, the number of correct ones.
        k: from 1 to n.

    Raises:
        ValueError: if k is out of range.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 4), pass_at_k(4, 0, 2)
    (0.25, 1.0, 0.0)
    """
    if not 0 < k <= n:
        raise ValueError(f"pass@{k} needs 1 to {n} samples of {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority_at_k(answers: Sequence[Hashable | None], right: Sequence[bool], k: int) -> float:
    """Unbiased estimate of the probability that the majority answer of k samples is correct (self-consistency).

    Wang et al. 2023, *Self-consistency improves chain of thought reasoning in language models*, section 2. The n
    samples are split into ⌊n / k⌋ groups of k, and the fraction of groups with a correct majority is returned. A tie
    counts as the fraction of the tied answers that are correct, the expected value of breaking it at random. Samples
    without an answer do not vote; a group without votes counts as wrong.

    Args:
        answers: the answer of each sample; None if it has none.
        right: whether each sample is correct; among equal answers, the value of the first one applies to all.
        k: the number of samples in a group, from 1 to n.

    Raises:
        ValueError: if k is out of range.

    >>> majority_at_k(["7", "7", "8", None], [True, True, False, False], 4)
    1.0
    >>> majority_at_k(["7", "8", None], [True, False, False], 3)
    0.5
    """
    n = len(answers)
    if not 0 < k <= n:
        raise ValueError(f"maj@{k} needs 1 to {n} samples of {n}")
    groups = n // k
    return sum(_majority(answers[g * k : (g + 1) * k], right[g * k : (g + 1) * k]) for g in range(groups)) / groups


def _majority(answers: Sequence[Hashable | None], right: Sequence[bool]) -> float:
    votes: dict[Hashable, int] = {}
    is_right: dict[Hashable, bool] = {}
    for answer, correct in zip(answers, right, strict=True):
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
            is_right.setdefault(answer, bool(correct))
    if not votes:
        return 0.0
    leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum(is_right[answer] for answer in leaders) / len(leaders)
