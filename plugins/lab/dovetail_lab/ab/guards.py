"""Guards: quantities at whose expense an arm may have improved the metric, compared in the same way as the metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Final, Literal

import attrs
import numpy as np
from jaxtyping import Float

from dovetail_lab.ab import paired
from dovetail_lab.ab.outcomes import Curve, Outcome, Runs
from dovetail_lab.ab.paired import Interval
from dovetail_lab.ab.verdict import Verdict

Figures = Float[np.ndarray, "pair"]
Sign = Literal["red", "changed", "same", "unknown"]
Over = Literal["window", "run", "sum", "median", "max"]
REDUCE: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "run": fmean,
    "sum": math.fsum,
    "median": lambda values: float(median(values)),
    "max": max,
}
LEVEL: Final = 0.05
"""Probability that any guard of an arm appears to have changed if none has."""
METRICS: Final = "metrics.jsonl"
TIMINGS: Final = "timings.jsonl"


@attrs.frozen(kw_only=True)
class Guard:
    """A quantity to watch.

    Attributes:
        label: its name in reports.
        metrics: the metrics that record it; the first one that a run has is used.
        file: the run's file.
        over: the values that count: those of the primary metric's window, their mean over the run, their sum, ...
        bad: the direction of change that is undesirable.
        tolerance: the greatest change that does not matter, as a share of the control's value.
        at_least: the greatest change that does not matter in the quantity's own unit, for shares near zero.
    """

    label: str
    metrics: tuple[str, ...]
    over: Over = "window"
    bad: Literal["up", "either"] = "up"
    tolerance: float = 0.1
    at_least: float = 0.0
    file: str = METRICS


GUARDS: Final = (
    Guard(label="response length", metrics=("eval/length_mean",)),
    Guard(label="response length in training", metrics=("completion/length_mean",)),
    Guard(label="truncated responses", metrics=("completion/truncated",), at_least=0.01),
    Guard(label="entropy", metrics=("entropy/mean",), bad="either", tolerance=0.25, at_least=0.01),
    Guard(label="KL to the reference", metrics=("kl/mean", "full_kl/mean"), tolerance=0.25, at_least=0.001),
    Guard(label="clip fraction", metrics=("policy_loss/clip_fraction",), tolerance=0.5, at_least=0.01),
    Guard(label="gradient norm", metrics=("optimizer/grad_norm",), over="run", bad="either", tolerance=0.5),
    Guard(label="effective step size", metrics=("optimizer/update_norm",), over="run", bad="either", tolerance=0.25),
    Guard(label="tokens generated", metrics=("tokens",), over="sum", file=TIMINGS),
    Guard(label="seconds per step", metrics=("time/step",), over="median", file=TIMINGS),
    Guard(label="memory", metrics=("memory/peak", "memory/arrays"), over="max", file=TIMINGS),
)
"""The guards. A change counts from 10 % of the control's value, unless stated otherwise."""


@attrs.frozen(kw_only=True)
class Change:
    """How a quantity of an arm compares with the control's over the pairs.

    Attributes:
        is_ratio: whether the change is a factor (the geometric mean over the pairs) or a mean difference. Factors are
            used if all values are positive; their intervals are computed from logarithms, and so are never negative.
        value: the factor, or the difference.
        interval: the confidence interval of the value.
        p: the p-value of the t-test, adjusted for the number of guards; it is at most 5 % if and only if `sure`.
        difference: the change in the quantity's unit: (factor − 1) times the control's mean, or the value itself.
    """

    is_ratio: bool
    value: float
    interval: Interval
    p: float
    difference: float

    @property
    def sure(self) -> bool:
        """Whether the interval excludes no change."""
        same = 1.0 if self.is_ratio else 0.0
        return not self.interval.low <= same <= self.interval.high


@attrs.frozen(kw_only=True)
class Watched:
    """A guard for one arm against the control, over the pairs.

    Attributes:
        guard: which.
        metric: where it was found; empty if no run has recorded it.
        control: mean of the control.
        arm: mean of the arm.
        change: how they compare; None if no pair has recorded it.
        sign: `red` where the arm wins the metric and this got worse; `changed`; `same`; `unknown`.
    """

    guard: Guard
    metric: str = ""
    control: float = math.nan
    arm: float = math.nan
    change: Change | None = None
    sign: Sign = "unknown"


def watch(runs: Runs, arm: str, seeds: Sequence[int], verdict: Verdict) -> list[Watched]:
    """Compare an arm with the control on every guard that both have recorded.

    The probability of any false alarm is at most 5 %, however many guards there are: the confidence of each interval is
    1 − 5 % / their number (Bonferroni).
    """
    found = {guard.label: _recorded(runs, guard, arm, seeds) for guard in GUARDS}
    recorded = sum(each is not None for each in found.values())
    watched = []
    for guard in GUARDS:
        each = found[guard.label]
        if each is None:
            watched.append(Watched(guard=guard))
            continue
        metric, control, mine = each
        change, mean = change_of(control, mine, recorded), float(control.mean())
        sign = judge(guard, mean, change.difference, change.sure, verdict)
        watched.append(
            Watched(guard=guard, metric=metric, control=mean, arm=float(mine.mean()), change=change, sign=sign)
        )
    return watched


def _recorded(runs: Runs, guard: Guard, arm: str, seeds: Sequence[int]) -> tuple[str, Figures, Figures] | None:
    """Return the metric of a guard, and its figures of control and arm in the pairs that have recorded it."""
    for metric in guard.metrics:
        figure = _figure(runs, guard, metric)
        control, mine = (runs.table(name, seeds, figure) for name in (runs.registration.design.control.name, arm))
        both = np.isfinite(control) & np.isfinite(mine)
        if both.any():
            return metric, control[both], mine[both]
    return None


def change_of(control: Figures, arm: Figures, guards: int = 1) -> Change:
    """Return how an arm's figures compare with the control's, pair by pair.

    Positive quantities are compared by the logarithms of their ratios, whose interval is exp(mean ± t·s/√n).

    Args:
        control: one for each pair.
        arm: the same of the arm.
        guards: how many quantities are compared; each interval has the confidence 1 − 5 % / guards.
    """
    is_ratio = bool((control > 0).all() and (arm > 0).all())
    differences = np.log(arm) - np.log(control) if is_ratio else arm - control
    interval, mean = paired.t_interval(differences, 1 - LEVEL / guards), float(differences.mean())
    p = min(guards * paired.t_p(differences), 1.0)
    if not is_ratio:
        return Change(is_ratio=False, value=mean, interval=interval, p=p, difference=mean)
    value, ends = math.exp(mean), np.exp([interval.low, interval.high])
    return Change(
        is_ratio=True,
        value=value,
        interval=Interval(float(ends[0]), float(ends[1])),
        p=p,
        difference=(value - 1) * float(control.mean()),
    )


def judge(guard: Guard, control: float, difference: float, sure: bool, verdict: Verdict) -> Sign:
    """Return the meaning of a change, which counts if it exceeds the tolerance and is statistically significant.

    >>> guard = Guard(label="length", metrics=("x",))
    >>> judge(guard, 10.0, 5.0, True, "better"), judge(guard, 10.0, -5.0, True, "better")
    ('red', 'changed')
    """
    if not sure or abs(difference) <= max(guard.tolerance * abs(control), guard.at_least):
        return "same"
    worse = difference > 0 or guard.bad == "either"
    return "red" if worse and verdict == "better" else "changed"


def _figure(runs: Runs, guard: Guard, metric: str) -> Callable[[Outcome], float]:
    """Return what reduces a run's record to one number."""
    design, steps = runs.registration.design, runs.registration.steps

    def figure(outcome: Outcome) -> float:
        curve = _spent(runs, outcome, metric) if guard.file == TIMINGS else runs.curve(outcome, metric)
        if not curve:
            return math.nan
        if guard.over == "window":
            return design.window.of(curve.items(), steps[outcome.arm])
        return REDUCE[guard.over](list(curve.values()))

    return figure


def _spent(runs: Runs, outcome: Outcome, metric: str) -> Curve:
    """A figure of the training steps, which alone have a rate of tokens; times that rate, the tokens of a step."""
    rate = "time/tokens_per_second"
    steps = [line for line in runs.records(outcome, TIMINGS) if rate in line]
    if metric == "tokens":
        return {line["step"]: float(round(line[rate] * line["time/step"])) for line in steps}
    return {line["step"]: line[metric] for line in steps if metric in line}
