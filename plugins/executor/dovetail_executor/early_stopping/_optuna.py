"""What the rules of Optuna have in common."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from dovetail_lab.sweep.stopping import Curve


def prunes(optuna: ModuleType, pruner: Any, curve: Curve, others: Iterable[Curve] = ()) -> bool:
    """Return whether one of Optuna's pruners stops a trial, where the others are trials that have ended."""
    study = optuna.create_study(direction="maximize")
    for other in others:
        study.add_trial(_trial(optuna, other, optuna.trial.TrialState.COMPLETE))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN", RuntimeWarning)  # a trial that has diverged from the start
        return bool(pruner.prune(study, _trial(optuna, curve, optuna.trial.TrialState.RUNNING)))


def as_reported(value: float) -> float:
    """Return a value as Optuna expects it, with NaN in place of the -inf that a curve has for what is not finite."""
    return value if math.isfinite(value) else math.nan


def _trial(optuna: ModuleType, curve: Curve, state: Any) -> Any:
    value = curve[-1][1] if state.is_finished() else None
    # Optuna interpolates between values, which with -inf gives NaN and no decision; it leaves NaN out.
    values = {step: as_reported(value) for step, value in curve}
    return optuna.trial.create_trial(state=state, value=value, intermediate_values=values)
