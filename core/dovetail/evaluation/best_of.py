"""What several samples of a prompt are worth together: pass@k and maj@k."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that at least one of k samples is right, estimated without bias from n samples.

    pass@k = 1 - C(n-c, k) / C(n, k). Chen et al. 2021, *Evaluating large language models trained on code*, equation 1.

    Args:
        n: samples drawn of one prompt.
        correct: c, how many of them are right.
        k: at most n.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 4), pass_at_k(4, 0, 2)
    (0.25, 1.0, 0.0)
    """
    if not 0 < k <= n:
        raise ValueError(f"pass@{k} needs 1 to {n} samples of {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority_at_k(answers: Sequence[Hashable | None], right: Sequence[bool], k: int) -> float:
    """Probability that the answer which most of k samples give is right (self-consistency).

    Wang et al. 2023, *Self-consistency improves chain of thought reasoning in language models*, section 2. The n
    samples are cut into ⌊n / k⌋ groups of k, and the share of right majorities is returned, which is unbiased. A tie
    counts with the share of its answers that are right, as if it were broken at random. Samples without an answer have
    no vote; without any vote the majority is wrong.

    Args:
        answers: what each sample answers; None: nothing.
        right: whether it is right; of equal answers the first one's is taken.
        k: votes in a group, at most n.

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
