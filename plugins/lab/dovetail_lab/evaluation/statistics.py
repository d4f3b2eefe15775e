"""What an evaluation estimates, and how sure it is of it."""

from __future__ import annotations

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

    >>> estimate(np.array([1.0, 0.0, np.nan]), (0, 1)).value
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
