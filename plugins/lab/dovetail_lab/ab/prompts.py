"""Two levels of uncertainty: the seeds that trained, and the prompts on which they were scored."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
from jaxtyping import Float
from scipy import stats

from dovetail_lab.ab.paired import Interval

RESAMPLES: Final = 4000

Table = Float[np.ndarray, "seed prompt"]


@attrs.frozen(kw_only=True)
class Shares:
    """Where the variance of the mean difference comes from; the three add up to 1, or are all 0 where it is 0."""

    seeds: float
    prompts: float
    rest: float


@attrs.frozen(kw_only=True)
class Flips:
    """Prompts that change sides between control and arm.

    Attributes:
        gained: prompts on which the arm succeeds more often over the seeds than the control.
        lost: prompts on which it succeeds less often.
        same: the others.
        p: exact two-sided McNemar test of gained against lost.
    """

    gained: int
    lost: int
    same: int
    p: float


def hierarchical_interval(differences: Table, confidence: float = 0.95) -> Interval:
    """Return a bootstrap interval of the mean difference that resamples seeds and prompts, each as a whole.

    Owen 2007, "The pigeonhole bootstrap": as every seed meets every prompt, a resample draws rows and columns with
    replacement, independently. It answers for other seeds *and* other prompts, so it is wider than either alone.

    Args:
        differences: arm minus control, one row per seed and one column per prompt.
        confidence: of the interval, from percentiles, drawn with a fixed generator.
    """
    rng = np.random.default_rng(0)
    seeds, prompts = differences.shape
    rows = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    columns = rng.multinomial(prompts, np.full(prompts, 1 / prompts), RESAMPLES) / prompts
    means = np.einsum("rs,sp,rp->r", rows, differences, columns, optimize=True)
    low, high = np.quantile(means, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Interval(float(low), float(high))


def variance_shares(differences: Table) -> Shares:
    """Split the variance of the mean difference into seeds, prompts, and their interaction with noise.

    A two-way random-effects analysis of variance, D[s, p] = μ + aₛ + bₚ + e (Searle, Casella and McCulloch 1992,
    "Variance Components", section 4.7), method of moments, negative components set to 0. The variance of the mean is
    σₐ²/S + σ_b²/P + σₑ²/(S·P): many seeds shrink the first, many prompts the second.
    """
    seeds, prompts = differences.shape
    if seeds < 2 or prompts < 2:
        return Shares(seeds=0.0, prompts=0.0, rest=0.0)
    rows, columns, mean = differences.mean(1), differences.mean(0), differences.mean()
    rest = float(np.sum((differences - rows[:, None] - columns[None, :] + mean) ** 2) / ((seeds - 1) * (prompts - 1)))
    of_seeds = max(float(np.var(rows, ddof=1)) - rest / prompts, 0.0)
    of_prompts = max(float(np.var(columns, ddof=1)) - rest / seeds, 0.0)
    parts = np.array([of_seeds / seeds, of_prompts / prompts, rest / (seeds * prompts)])
    if not parts.sum():
        return Shares(seeds=0.0, prompts=0.0, rest=0.0)
    shares = parts / parts.sum()
    return Shares(seeds=float(shares[0]), prompts=float(shares[1]), rest=float(shares[2]))


def flips(control: Table, arm: Table) -> Flips:
    """Count prompts on which the arm does better or worse than the control, each prompt once whatever the seeds.

    McNemar 1947: prompts that do not change carry no information, those that do are a fair coin if the arms are alike.
    With one seed this is McNemar's exact test; with several, each prompt's mean over the seeds decides its side, as
    runs of one prompt are not independent.

    >>> flips(np.array([[1.0, 0.0, 0.0]]), np.array([[1.0, 1.0, 1.0]]))
    Flips(gained=2, lost=0, same=1, p=0.5)
    """
    change = np.asarray(arm).mean(0) - np.asarray(control).mean(0)
    gained, lost = int(np.sum(change > 1e-12)), int(np.sum(change < -1e-12))
    p = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Flips(gained=gained, lost=lost, same=len(change) - gained - lost, p=p)
