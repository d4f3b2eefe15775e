"""What an evaluation estimates, and how sure it is of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final

import attrs
import numpy as np
from jaxtyping import Float

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
BLOCK: Final = 1 << 22
"""Values drawn at a time, so that a large data set takes no more memory than a small one."""


@attrs.frozen
class Estimate:
    """A mean over `n` prompts, and the ends of its confidence interval."""

    value: float
    low: float
    high: float
    n: int


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


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion, which holds at 0, at 1 and for few trials.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), with p = successes / n and z the normal quantile of
    (1 + confidence) / 2. Wilson 1927, *Probable inference, the law of succession, and statistical inference*.

    >>> [round(end, 4) for end in wilson(8, 10)], [round(end, 4) for end in wilson(0, 10)]
    ([0.4902, 0.9433], [0.0, 0.2775])
    """
    from scipy import stats

    found = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def bootstrap(values: Float[np.ndarray, "prompt"], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean, from 2,000 resamples of a fixed generator.

    Prompts are what is drawn, each with all its samples, as samples of one prompt are not independent evidence. One
    prompt has an interval of no width. Efron 1979, *Bootstrap methods: another look at the jackknife*.

    >>> bootstrap(np.array([3.0, 3.0]))
    (3.0, 3.0)
    """
    from scipy import stats

    if len(values) == 1:
        return float(values[0]), float(values[0])
    found = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, BLOCK // len(values)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def estimate(values: Float[np.ndarray, "prompt"], ends: tuple[float, float] | None = None) -> Estimate | None:
    """Return the mean over prompts with its interval.

    NaN is a prompt without a value; None is returned where no prompt has one.

    Args:
        values: one for each prompt.
        ends: the least and the greatest value that there can be, if that is known: (0, 1) for a proportion. Where all
            values are one or the other, the interval is Wilson's, stretched to lie between them; elsewhere it is the
            bootstrap's, which has no width if all values are equal.

    >>> estimate(np.array([1.0, 0.0, math.nan]), (0, 1)).value
    0.5
    >>> round(estimate(np.array([0.0, 0.0]), (0, 3)).high, 3), estimate(np.array([0.0, 0.0])).high
    (1.973, 0.0)
    """
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    if ends is not None and np.all(np.isin(values, ends)):
        least, greatest = ends
        low, high = (
            least + (greatest - least) * share for share in wilson(int(np.sum(values == greatest)), len(values))
        )
    else:
        low, high = bootstrap(values)
    return Estimate(float(values.mean()), low, high, len(values))
