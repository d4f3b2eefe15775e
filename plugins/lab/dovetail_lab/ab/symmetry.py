"""What the sign-flip test assumes, that differences are symmetric, as far as few differences can speak against it.

Equal means are not enough. An arm that is a little better and collapses in one seed of ten has the control's mean, and
wins in every sample that happens to hold no collapse; nothing in such a sample tells. So there are two kinds of
caution here: what the differences show, and how often something may happen that they do not.
"""

from __future__ import annotations

import functools
from typing import Final

import attrs
import numpy as np
from scipy import stats

from dovetail_lab.ab.paired import Pairs

LEVEL: Final = 0.05
FAR: Final = 5.0
"""Modified z-score of an outlier. Of normal differences 3 to 6 % of samples of 6 to 10 have one on one side only, where
the customary 3.5 finds one in 11 to 13 %."""
DRAWS: Final = 9999


@attrs.frozen(kw_only=True)
class Symmetry:
    """How lopsided differences are.

    Attributes:
        skewness: third standardised moment; 0 where they are all equal.
        p: chance of so large a skewness, either way, of as many normal differences.
        for_arm: how many differences lie far above the others, in favour of the arm.
        against_arm: how many lie far below.
    """

    skewness: float
    p: float
    for_arm: int
    against_arm: int

    @property
    def lopsided(self) -> bool:
        """Whether the skewness is more than chance."""
        return self.p <= LEVEL

    @property
    def one_sided(self) -> int:
        """How many outliers there are, if all of them are on one side: positive for the arm, negative against it."""
        return 0 if self.for_arm and self.against_arm else self.for_arm - self.against_arm


def symmetry(differences: Pairs) -> Symmetry:
    """Look for signs that differences are not symmetric: skewness, and outliers by their modified z-score.

    The score is 0.6745·(d − median) / MAD, with MAD the median absolute deviation (Iglewicz and Hoaglin 1993, "How to
    Detect and Handle Outliers"); where most differences are equal, MAD is 0 and each that is not counts.

    >>> symmetry(np.array([0.02, 0.03, 0.025, 0.02, 0.035, -0.4])).one_sided
    -1
    """
    values = np.asarray(differences, float)
    centred = values - np.median(values)
    far = 0.6745 * np.abs(centred) > FAR * np.median(np.abs(centred))
    spread = float(np.std(values))
    flat = len(values) < 3 or spread <= 1e-12 * float(np.max(np.abs(values), initial=0.0))
    skewness = 0.0 if flat else float(stats.skew(values))
    chance = np.abs(_chance_skewness(len(values))) if not flat else np.ones(1)
    return Symmetry(
        skewness=skewness,
        p=float((np.sum(chance >= abs(skewness)) + 1) / (len(chance) + 1)),
        for_arm=0 if flat else int(np.sum(far & (centred > 0))),
        against_arm=0 if flat else int(np.sum(far & (centred < 0))),
    )


@functools.cache
def _chance_skewness(pairs: int) -> np.ndarray:
    """Return the skewness of samples of normal differences, which depends on their number alone; always the same."""
    return stats.skew(np.random.default_rng(0).normal(size=(DRAWS, pairs)), axis=1)


def unseen_rate(pairs: int, confidence: float = 0.95) -> float:
    """Return how often something may happen that has not happened in `pairs` pairs: 1 − (1 − confidence)^(1/n).

    The upper end of Clopper and Pearson's one-sided interval for 0 of n; about 3/n.

    >>> round(unseen_rate(8), 2), round(unseen_rate(6), 2)
    (0.31, 0.39)
    """
    return float(stats.binomtest(0, pairs, alternative="less").proportion_ci(confidence).high)
