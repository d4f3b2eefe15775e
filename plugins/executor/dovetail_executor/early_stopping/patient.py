"""Optuna's patient pruner."""

from __future__ import annotations

import warnings
from typing import Annotated

from annotated_types import Ge

from dovetail.registry import declares
from dovetail_executor.early_stopping._optuna import prunes
from dovetail_executor.sampler._optuna import load
from dovetail_lab.sweep.stopping import Curve


@declares(absolute=True)
def patient(curve: Curve, *, patience: Annotated[int, Ge(0)] = 3, min_delta: Annotated[float, Ge(0)] = 0.0) -> bool:
    """Stop a trial whose last values are all worse than the best one before them.

        stop  ⇔  max_{i < n-k} yᵢ - δ  >  max_{i ≥ n-k} yᵢ

    over its n values, counted from 0, with k = patience + 1. Akiba et al. 2019, *Optuna*, and its `PatientPruner`
    without a pruner inside. Needs the extra `optuna`.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better.
        patience: how many values may follow the first one that is worse.
        min_delta: δ, by how much they must be worse, in the metric's unit.

    Returns:
        Whether to stop. Values that are not finite are left out; a trial whose last values are all so is stopped.

    >>> fallen = [(10, 0.5), (20, 0.4), (30, 0.3)]
    >>> patient(fallen, patience=1), patient(fallen, patience=2)  # doctest: +SKIP
    (True, False)
    """
    if len(curve) <= patience + 1:
        return False
    optuna = load("early_stopping 'patient'")
    if all(value == float("-inf") for _, value in curve[-patience - 1 :]):
        return True  # Optuna's maximum of NaN alone decides nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        rule = optuna.pruners.PatientPruner(None, patience, min_delta)
        return prunes(optuna, rule, curve)
