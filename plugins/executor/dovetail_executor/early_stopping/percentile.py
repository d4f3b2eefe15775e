"""Optuna's percentile pruner."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Interval

from dovetail_executor.early_stopping._optuna import prunes
from dovetail_executor.sampler._optuna import load
from dovetail_lab.sweep.stopping import Curve


def percentile(
    curve: Curve,
    others: list[Curve],
    *,
    percentile: Annotated[float, Interval(gt=0, lt=100)] = 25.0,
    grace: Annotated[int, Ge(0)] = 10,
    min_trials: Annotated[int, Ge(1)] = 3,
) -> bool:
    """Stop a trial whose best value so far is not among the best p percent of the others at the same step.

        stop  ⇔  max_{t ≤ s} yₜ  <  the (100 - p)-th percentile of yⱼₛ

    Akiba et al. 2019, *Optuna*, and its `PercentilePruner`; 50 is its median pruner, which looks at the others' values
    at the step and not, as `median` here does, at their means up to it. Needs the extra `optuna`.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better. s is its last step.
        others: yⱼ, those of the other trials.
        percentile: p.
        grace: steps during which no trial is stopped.
        min_trials: how many others must have a value at step s.

    Returns:
        Whether to stop.

    >>> others = [[(20, 0.1)], [(20, 0.3)], [(20, 0.5)], [(20, 0.7)]]
    >>> percentile([(20, 0.4)], others), percentile([(20, 0.8)], others)  # doctest: +SKIP
    (True, False)
    """
    if not curve:
        return False
    optuna = load("early_stopping 'percentile'")
    rule = optuna.pruners.PercentilePruner(
        percentile, n_startup_trials=min_trials, n_warmup_steps=grace + 1, n_min_trials=min_trials
    )
    return prunes(optuna, rule, curve, others)
