"""Statistics of one arm against the control over the same seeds.

Everywhere `differences` is [pair]: arm minus control for each seed, signed so that positive is better. The test that
decides is the exact sign-flip test, whose type I error is right at any number of pairs; intervals describe.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Final

import attrs
import numpy as np
from jaxtyping import Float
from scipy import stats

EXACT_UP_TO: Final = 14
"""Pairs up to which every one of the 2ⁿ sign patterns is counted."""

PATTERNS: Final = 1 << 16
"""Sign patterns drawn beyond that."""

FAR: Final = 10.0
"""Noncentrality beyond the critical value from which on power is 1; scipy's distribution gives NaN far out."""

Pairs = Float[np.ndarray, "pair"]


@attrs.frozen
class Interval:
    """A confidence interval."""

    low: float
    high: float


def sign_flip_p(differences: Pairs, shift: float = 0.0) -> float:
    """Return the two-sided p-value of the sign-flip test: share of sign patterns whose |mean| is at least the observed.

    Fisher 1935, "The Design of Experiments", section 21. Under the hypothesis that arm and control are exchangeable
    within a seed the differences are symmetric about `shift`, and the test is exact whatever their distribution. Up to
    14 pairs all patterns are counted; beyond, 65,536 are drawn with a fixed generator and the observed one is added
    (Phipson and Smyth 2010), so that p is never 0 and the same data give the same p.

    >>> sign_flip_p(np.arange(1.0, 7.0)), sign_flip_p(np.array([1.0, -1.0]))
    (0.03125, 1.0)

    Raises:
        ValueError: if a difference is not finite: every comparison with NaN is false, and p would be 0.
    """
    return float(sign_flip_ps(np.asarray(differences, float)[None] - shift)[0])


def sign_flip_ps(samples: Float[np.ndarray, "sample pair"]) -> Float[np.ndarray, "sample"]:
    """Return the p-value of each of several samples of as many differences, as simulations need them."""
    if not np.isfinite(samples).all():
        raise ValueError(f"differences {samples.tolist()} are not all finite: leave lost runs out first")
    pairs = samples.shape[1]
    # Sums of the same numbers in another order differ by rounding: what ties must count as a tie.
    enough = np.abs(samples.sum(1)) * (1 - 1e-9) - 1e-12 * np.abs(samples).sum(1)
    if pairs <= EXACT_UP_TO:
        return np.array(
            [np.mean(np.abs(_patterns(pairs) @ row) >= least) for row, least in zip(samples, enough, strict=True)]
        )
    signs = np.random.default_rng(0).choice((1.0, -1.0), (PATTERNS, pairs))
    beyond = np.array([np.sum(np.abs(signs @ row) >= least) for row, least in zip(samples, enough, strict=True)])
    return (beyond + 1) / (PATTERNS + 1)


@functools.lru_cache(maxsize=EXACT_UP_TO)
def _patterns(pairs: int) -> Float[np.ndarray, "pattern pair"]:
    """Return the sign patterns whose first sign is +; the others are these turned round, with the same |mean|."""
    bits = np.arange(2 ** (pairs - 1))[:, None] >> np.arange(pairs)
    return 1.0 - 2.0 * (bits & 1)[:, ::-1]


def smallest_p(pairs: int) -> float:
    """Return the least p-value that the sign-flip test can give.

    >>> smallest_p(5), smallest_p(6)
    (0.0625, 0.03125)
    """
    return 2.0 ** (1 - pairs)


def attainable_level(alpha: float, pairs: int) -> float:
    """Return the largest p-value of the sign-flip test that is at most `alpha`; 0 where there is none.

    >>> attainable_level(0.05, 6), attainable_level(0.05, 7), attainable_level(0.05, 5)
    (0.03125, 0.046875, 0.0)
    """
    if pairs > EXACT_UP_TO:
        return alpha
    return math.floor(alpha / smallest_p(pairs) * (1 + 1e-12)) * smallest_p(pairs)


def holm(p_values: Float[np.ndarray, "arm"]) -> Float[np.ndarray, "arm"]:
    """Return p-values adjusted for the number of arms by Holm's step-down method (Holm 1979).

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    stepped = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


def t_interval(differences: Pairs, confidence: float = 0.95) -> Interval:
    """Return the paired t interval, mean ± t·s/√n with n − 1 degrees of freedom; infinite for a single pair.

    >>> t_interval(np.array([1.0, 2.0, 3.0])).low.__round__(3)
    -0.484
    """
    n, mean = len(differences), float(np.mean(differences))
    if n < 2:
        return Interval(-math.inf, math.inf)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * np.std(differences, ddof=1) / math.sqrt(n))
    return Interval(mean - half, mean + half)


def t_p(differences: Pairs) -> float:
    """Return the two-sided p-value of the paired t-test; 1 for a single pair, 0 for equal differences that are not 0.

    >>> round(t_p(np.array([1.0, 2.0, 3.0])), 3), t_p(np.zeros(4)), t_p(np.ones(4))
    (0.074, 1.0, 0.0)
    """
    if len(differences) < 2 or not np.any(differences):
        return 1.0
    if not np.ptp(differences):
        return 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def bca_interval(differences: Pairs, confidence: float = 0.95) -> Interval:
    """Return the bias-corrected and accelerated bootstrap interval of the mean (Efron 1987), from a fixed generator.

    Too narrow below some ten pairs, like every bootstrap: shown, never decided by. Equal differences have an interval
    of no width.
    """
    if len(differences) < 2 or np.ptp(differences) == 0:
        value = float(np.mean(differences))
        return Interval(value, value)
    found = stats.bootstrap(
        (differences,), np.mean, confidence_level=confidence, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def iqm(values: Float[np.ndarray, "seed"]) -> float:
    """Return the interquartile mean: the mean of the middle half, quartile values weighted by their share.

    Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.3. With n no
    multiple of four, a value cut by a quartile counts in part, so that no seed is dropped whole.

    >>> iqm(np.array([0.0, 1.0, 2.0, 9.0])), iqm(np.array([0.0, 1.0, 5.0]))
    (1.5, 1.5)
    """
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    edges = np.arange(n + 1)
    kept = np.clip(np.minimum(edges[1:], 0.75 * n) - np.maximum(edges[:-1], 0.25 * n), 0, None)
    return float(kept @ ordered / kept.sum())


def improvement_probability(arm: Float[np.ndarray, "seed"], control: Float[np.ndarray, "other"]) -> float:
    """Return P(a random run of the arm beats a random run of the control), ties counting half.

    Agarwal et al. 2021, section 4.3: the Mann-Whitney statistic over all pairs of runs, divided by their number.

    >>> improvement_probability(np.array([1.0, 2.0]), np.array([0.0, 2.0]))
    0.625
    """
    gaps = np.subtract.outer(np.asarray(arm, float), np.asarray(control, float))
    return float(np.mean((gaps > 0) + 0.5 * (gaps == 0)))


def correlation(arm: Float[np.ndarray, "seed"], control: Float[np.ndarray, "seed"]) -> float:
    """Return Pearson's correlation of the arms over the seeds: what common random numbers have bought; NaN if unknown.

    >>> correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])).__round__(6)
    1.0
    """
    if len(arm) < 3 or np.ptp(arm) == 0 or np.ptp(control) == 0:
        return math.nan
    return float(np.corrcoef(arm, control)[0, 1])


def power(effect: float, deviation: float, pairs: int, alpha: float = 0.05) -> float:
    """Return the chance that the two-sided sign-flip test finds a true mean difference of `effect`, if it is normal.

    With n pairs p is a multiple of 2¹⁻ⁿ, so that the test works at the level α' = ⌊α·2ⁿ⁻¹⌋ / 2ⁿ⁻¹ ≤ α. Where α' is the
    least p itself, it rejects if all differences have one sign, which has probability Φ(δ)ⁿ + Φ(−δ)ⁿ with δ = effect /
    deviation. Else its power is close to that of the paired t-test at α', 1 − P(|T| < t_crit) for T noncentral t with
    n − 1 degrees of freedom and noncentrality δ·√n (Cohen 1988, "Statistical Power Analysis", section 2.4): within 0.06
    of it in simulation, and within 0.02 from nine pairs on.

    Args:
        effect: the true mean difference.
        deviation: standard deviation of the differences.
        pairs: n.
        alpha: the level of the test.

    >>> round(power(1.0, 1.0, 10), 2), round(power(1.0, 1.0, 6), 2), power(1.0, 1.0, 5)
    (0.8, 0.35, 0.0)
    """
    level = attainable_level(alpha, pairs)
    if pairs < 2 or not level:
        return 0.0
    if deviation == 0:
        return 1.0 if effect else 0.0
    standardised = abs(effect) / deviation
    if level == smallest_p(pairs):
        return float(stats.norm.cdf(standardised) ** pairs + stats.norm.cdf(-standardised) ** pairs)
    critical = stats.t.ppf(1 - level / 2, pairs - 1)
    centre = standardised * math.sqrt(pairs)
    if centre > critical + FAR:
        return 1.0
    # the second is the lower tail, for which scipy's own `cdf` gives NaN where it is nearly 0
    return float(stats.nct.sf(critical, pairs - 1, centre) + stats.nct.sf(critical, pairs - 1, -centre))


def detectable_effect(deviation: float, pairs: int, alpha: float = 0.05, wanted: float = 0.8) -> float:
    """Return the least true difference found with power `wanted`; infinite where no difference could be.

    >>> round(detectable_effect(1.0, 10), 2), detectable_effect(1.0, 4)
    (1.0, inf)
    """
    if deviation == 0:
        return 0.0
    if pairs < 2 or smallest_p(pairs) > alpha:
        return math.inf
    low, high = 0.0, deviation
    while power(high, deviation, pairs, alpha) < wanted:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, deviation, pairs, alpha) >= wanted else (middle, high)
    return high


def pairs_needed(
    effect: float, deviation: float, alpha: float = 0.05, wanted: float = 0.8, limit: int = 10_000
) -> int | None:
    """Return the least number of pairs that finds `effect` with power `wanted`; None if `limit` do not.

    >>> pairs_needed(1.0, 1.0), pairs_needed(0.0, 1.0)
    (11, None)
    """
    if effect == 0:
        return None
    least = next(n for n in itertools.count(2) if smallest_p(n) <= alpha)
    if power(effect, deviation, limit, alpha) < wanted:
        return None
    low, high = least - 1, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, deviation, middle, alpha) >= wanted else (middle, high)
    return high
