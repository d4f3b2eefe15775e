"""Is it a fair win? Quantities by which an arm may have bought its result, compared as the metric itself is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Final, Literal

import attrs
import numpy as np

from dovetail_lab.ab import paired
from dovetail_lab.ab.outcomes import Curve, Outcome, Runs
from dovetail_lab.ab.paired import Interval
from dovetail_lab.ab.verdict import Verdict

Sign = Literal["red", "changed", "same", "unknown"]
Over = Literal["window", "run", "sum", "median", "max"]
REDUCE: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "run": fmean,
    "sum": math.fsum,
    "median": lambda values: float(median(values)),
    "max": max,
}
METRICS: Final = "metrics.jsonl"
TIMINGS: Final = "timings.jsonl"


@attrs.frozen(kw_only=True)
class Guard:
    """A quantity to be watched.

    Attributes:
        label: what it is called.
        metrics: where it is recorded; the first that a run has.
        file: the run's file.
        over: the values that count: those of the primary metric's window, their mean over the run, their sum, ...
        bad: in which direction a change is spending or drifting.
        tolerance: the change that is of no concern, as a share of the control's value.
        at_least: the same in the quantity's own unit, for shares near zero.
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
"""What is watched. A change counts from 10 % of the control's value on, unless said otherwise."""


@attrs.frozen(kw_only=True)
class Watched:
    """A guard for one arm against the control, over the pairs.

    Attributes:
        guard: which.
        metric: where it was found; empty if no run has recorded it.
        control: mean of the control.
        arm: mean of the arm.
        change: interval of the mean paired difference, 95 %.
        p: exact sign-flip p-value, unadjusted.
        sign: `red` where the arm wins the metric and this got worse; `changed`; `same`; `unknown`.
    """

    guard: Guard
    metric: str
    control: float
    arm: float
    change: Interval
    p: float
    sign: Sign

    @property
    def ratio(self) -> float:
        """The arm's mean as a multiple of the control's; NaN where that is zero."""
        return self.arm / self.control if self.control else math.nan


def watch(runs: Runs, arm: str, seeds: Sequence[int], verdict: Verdict) -> list[Watched]:
    """Compare an arm with the control on every guard."""
    return [_watch(runs, guard, arm, seeds, verdict) for guard in GUARDS]


def _watch(runs: Runs, guard: Guard, arm: str, seeds: Sequence[int], verdict: Verdict) -> Watched:
    design = runs.registration.design
    for metric in guard.metrics:
        figure = _figure(runs, guard, metric)
        control, mine = (runs.table(name, seeds, figure) for name in (design.control.name, arm))
        both = np.isfinite(control) & np.isfinite(mine)
        if both.any():
            break
    else:
        nothing = Interval(-math.inf, math.inf)
        return Watched(
            guard=guard, metric="", control=math.nan, arm=math.nan, change=nothing, p=math.nan, sign="unknown"
        )
    control, mine = control[both], mine[both]
    change = paired.t_interval(mine - control)
    return Watched(
        guard=guard,
        metric=metric,
        control=float(control.mean()),
        arm=float(mine.mean()),
        change=change,
        p=paired.sign_flip_p(mine - control),
        sign=judge(guard, float(control.mean()), float((mine - control).mean()), change, verdict),
    )


def judge(guard: Guard, control: float, difference: float, change: Interval, verdict: Verdict) -> Sign:
    """Say what a change means: it counts if it is beyond the tolerance and its interval does not hold zero.

    >>> guard = Guard(label="length", metrics=("x",))
    >>> judge(guard, 10.0, 5.0, Interval(4.0, 6.0), "better"), judge(guard, 10.0, -5.0, Interval(-6.0, -4.0), "better")
    ('red', 'changed')
    """
    sure = change.low > 0 or change.high < 0
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
