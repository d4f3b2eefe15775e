"""The median stopping rule."""

from __future__ import annotations

from statistics import fmean
from statistics import median as median_of

from dovetail_lab.sweep.stopping import Curve


def median(curve: Curve, others: list[Curve], *, grace: int = 10, min_trials: int = 3) -> bool:
    """Stop a trial whose best value so far is below the median of the others' running averages at the same step.

        stop  ⇔  max_{t ≤ s} yₜ  <  median_j  mean_{t ≤ s} yⱼₜ

    Golovin et al. 2017, *Google Vizier*, section 3.2.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better. s is its last step.
        others: yⱼ, the curves of the other trials; only trials that have reached step s with a value by then count.
        grace: number of initial steps during which no trial is stopped.
        min_trials: number of other trials that must count.

    Returns:
        Whether to stop the trial.

    >>> others = [[(10, 0.1), (20, 0.3)], [(10, 0.3), (20, 0.5)], [(10, 0.5), (20, 0.7)]]
    >>> median([(10, 0.2), (20, 0.3)], others), median([(10, 0.2), (20, 0.5)], others)
    (True, False)
    """
    if not curve or curve[-1][0] <= grace:
        return False
    step = curve[-1][0]
    so_far = [[value for at, value in other if at <= step] for other in others if other[-1][0] >= step]
    averages = [fmean(values) for values in so_far if values]
    return len(averages) >= min_trials and max(value for _, value in curve) < median_of(averages)
