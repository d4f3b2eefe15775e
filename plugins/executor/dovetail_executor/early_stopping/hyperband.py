"""Hyperband, by Optuna's successive halving in each bracket."""

from __future__ import annotations

import math
from binascii import crc32
from typing import Annotated, Any

from annotated_types import Ge

from dovetail_executor.early_stopping._optuna import as_reported
from dovetail_executor.sampler._optuna import load
from dovetail_lab.sweep.stopping import Curve


def hyperband(
    curve: Curve,
    others: list[Curve],
    total_steps: int,
    *,
    min_resource: Annotated[int, Ge(1)] = 10,
    reduction: Annotated[int, Ge(2)] = 3,
) -> bool:
    """Halve successively within brackets, whose trials are first judged after r, ηr, η²r, ... steps.

        B = ⌊log_η(T / r)⌋ + 1 brackets; rung k of bracket b is at step  r·η^(b+k)
        stop  ⇔  y(rung) is not among the best 1/η of the bracket's trials that have come to the rung

    Few trials are in the later brackets, as each bracket is worth the same number of steps. Li et al. 2018,
    *Hyperband*, algorithm 1, as Optuna's `HyperbandPruner` has it. Needs the extra `optuna`.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better. Its value at a rung is the first one at the
            rung's step or later.
        others: those of the other trials.
        total_steps: T, the number of steps of a complete trial.
        min_resource: r, in steps.
        reduction: η.

    Returns:
        Whether to stop.

    Departures:
        Optuna draws a trial's bracket by its number, which a rule is not told; here it is drawn by the first value
        after step 0.

    >>> others = [[(10, 0.1 * i)] for i in range(20)]
    >>> hyperband([(10, -1.0)], others, 20), hyperband([(10, 9.0)], others, 20)  # doctest: +SKIP
    (True, False)
    """
    optuna = load("early_stopping 'hyperband'")
    count = _brackets(total_steps, min_resource, reduction)
    bracket = _bracket(curve, count, reduction)
    if bracket is None:
        return False
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource, reduction, bracket)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    steps = [min_resource * reduction**k for k in range(bracket, count)]
    for other in others:
        if _bracket(other, count, reduction) == bracket:
            _replay(study, other, steps)
    trial = _replay(study, curve[:-1], steps)
    step, value = curve[-1]
    trial.report(as_reported(value), step)
    return bool(trial.should_prune())


def _brackets(total_steps: int, min_resource: int, reduction: int) -> int:
    count = 1
    while min_resource * reduction**count <= total_steps:
        count += 1
    return count


def _bracket(curve: Curve, count: int, reduction: int) -> int | None:
    """Draw the bracket of a trial, with Optuna's shares; None before its first value after step 0."""
    first = next((pair for pair in curve if pair[0] > 0), None)
    if first is None:
        return None
    shares = [math.ceil(count * reduction**s / (s + 1)) for s in reversed(range(count))]
    drawn = crc32(repr(first).encode()) % sum(shares)
    return next(bracket for bracket in range(count) if drawn < sum(shares[: bracket + 1]))


def _replay(study: Any, curve: Curve, rungs: list[int]) -> Any:
    """Tell Optuna the values with which a trial has come to each rung, whatever it answers."""
    trial, last = study.ask(), None
    for rung in rungs:
        reached = next((pair for pair in curve if pair[0] >= rung), None)
        if reached is None:
            break
        if reached != last:
            trial.report(as_reported(reached[1]), reached[0])
        last = reached
        trial.should_prune()
    return trial
