"""Asynchronous successive halving."""

from __future__ import annotations

from dovetail_lab.sweep.stopping import Curve


def successive_halving(
    curve: Curve, others: list[Curve], total_steps: int, *, reduction: int = 3, rungs: int = 3
) -> bool:
    """Stop a trial that, on reaching a rung, is not among the best 1/η of the trials that have reached it.

        rung r is at step  ⌈T / ηʳ⌉,  r = R, ..., 1
        stop  ⇔  |{j : yⱼ(rung) > y(rung)}|  ≥  max(1, ⌊n / η⌋)

    where n is the number of trials that have reached the rung, including this one. A trial never waits for others
    (ASHA), so the first few trials at a rung continue. Li et al. 2020, *A System for Massively Parallel Hyperparameter
    Tuning*, algorithm 2.

    Args:
        curve: y, the (step, value) pairs of the trial; higher is better. Its value at a rung is the first one at the
            rung's step or later.
        others: yⱼ, the curves of the other trials.
        total_steps: T, the number of steps of a complete trial.
        reduction: η; one trial in η continues past each rung.
        rungs: R, the number of rungs.

    Returns:
        Whether to stop the trial.

    *Departures*: the paper pauses trials and promotes one once it is among the best 1/η. Here a trial that is not among
    them when it reaches a rung is stopped for good, so that no paused trials have to be kept.

    >>> others = [[(3, 0.5)], [(3, 0.7)], [(3, 0.1)]]
    >>> successive_halving([(3, 0.6)], others, 9, rungs=1), successive_halving([(3, 0.8)], others, 9, rungs=1)
    (True, False)
    """
    for rung in range(rungs, 0, -1):
        step = -(-total_steps // reduction**rung)
        reached = [next(value for at, value in each if at >= step) for each in others if each[-1][0] >= step]
        if not curve or not _has_just_come_to(curve, step):
            continue
        better = sum(value > curve[-1][1] for value in reached)
        if better >= max(1, (len(reached) + 1) // reduction):
            return True
    return False


def _has_just_come_to(curve: Curve, step: int) -> bool:
    """Return whether the last value of a curve is the first one at this step or later."""
    return curve[-1][0] >= step and (len(curve) == 1 or curve[-2][0] < step)
