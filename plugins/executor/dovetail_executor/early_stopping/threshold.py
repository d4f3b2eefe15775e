"""Optuna's threshold pruner."""

from __future__ import annotations

import math
from typing import Annotated

from annotated_types import Ge

from dovetail.errors import ConfigError
from dovetail.registry import declares
from dovetail_executor.early_stopping._optuna import prunes
from dovetail_executor.sampler._optuna import load
from dovetail_lab.sweep.stopping import Curve


@declares(absolute=True, settings={"lower": -0.5})
def threshold(
    curve: Curve, *, lower: float | None = None, upper: float | None = None, grace: Annotated[int, Ge(0)] = 10
) -> bool:
    """Stop a trial whose last value is out of bounds or is not finite.

        stop  ⇔  yₛ < l  or  yₛ > u  or yₛ is not finite

    Akiba et al. 2019, *Optuna*, and its `ThresholdPruner`. Needs the extra `optuna`.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better, so that a metric with the goal `min` is
            negated. s is its last step.
        lower: l, in the sign of the curve; None for no bound.
        upper: u, likewise.
        grace: steps during which no trial is stopped.

    Returns:
        Whether to stop.

    Raises:
        ConfigError: if the lower bound exceeds the upper one.

    >>> threshold([(20, 0.05)], lower=0.1), threshold([(20, 0.2)], lower=0.1)  # doctest: +SKIP
    (True, False)
    """
    low, high = -math.inf if lower is None else lower, math.inf if upper is None else upper
    if low > high:
        raise ConfigError(f"early_stopping.threshold: lower = {lower} exceeds upper = {upper}")
    if not curve:
        return False
    optuna = load("early_stopping 'threshold'")
    return prunes(optuna, optuna.pruners.ThresholdPruner(low, high, n_warmup_steps=grace + 1), curve)
