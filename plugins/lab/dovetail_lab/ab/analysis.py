"""The analysis of an A/B test at one of its looks, with all contents of the report and of `ab.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from jaxtyping import Float

from dovetail_lab.ab.design import Arm
from dovetail_lab.ab.guards import Watched, watch
from dovetail_lab.ab.outcomes import EVALUATIONS, Outcome, Runs
from dovetail_lab.ab.paired import Interval
from dovetail_lab.ab.prompts import Flips, Shares, Table, flips, two_way_interval, variance_shares
from dovetail_lab.ab.registration import Registration
from dovetail_lab.ab.verdict import Comparison, compare, results_of_pairs
from dovetail_lab.report.curves import Curves, mean_curves


@attrs.frozen(kw_only=True)
class Prompts:
    """The result of an arm, prompt by prompt.

    Attributes:
        control: the control's mean over the seeds, for each prompt.
        arm: the arm's mean over the seeds, for each prompt.
        interval: the interval of the mean difference over other seeds and other prompts, with the confidence of the
            comparison.
        shares: the sources of the variance.
        flips: the prompts that changed between success and failure; None if the values are not binary.
    """

    control: Float[np.ndarray, "prompt"]
    arm: Float[np.ndarray, "prompt"]
    interval: Interval
    shares: Shares
    flips: Flips | None


@attrs.frozen(kw_only=True)
class Analysis:
    """The results of an A/B test so far.

    Attributes:
        runs: the runs.
        look: the number of planned looks that are done; 0 means that nothing has been compared yet.
        seeds: the seeds that this look includes.
        comparisons: comparisons by arm; missing for an arm without a finished seed in common with the control.
        guards: guards by arm.
        prompts: results by prompt for each arm, if the runs have stored them.
        over: whether this is the final look, because it is the last one or because all arms are decided.
    """

    runs: Runs
    look: int
    seeds: tuple[int, ...]
    comparisons: Mapping[str, Comparison]
    guards: Mapping[str, Sequence[Watched]]
    prompts: Mapping[str, Prompts]
    over: bool

    def __str__(self) -> str:
        """Return the verdicts in sentences."""
        from dovetail_lab.ab.words import found  # which reads analyses

        return found(self)

    @property
    def registration(self) -> Registration:
        """The registration of the test."""
        return self.runs.registration

    @property
    def decided(self) -> bool:
        """Whether every arm has a verdict."""
        verdicts = [self.comparisons[arm.name].verdict for arm in self.treatments if arm.name in self.comparisons]
        return len(verdicts) == len(self.treatments) and "undecided" not in verdicts

    @property
    def treatments(self) -> tuple[Arm, ...]:
        """The arms other than the control."""
        return self.registration.design.treatments

    @property
    def lost(self) -> list[Outcome]:
        """The runs that ended without a result."""
        return [outcome for outcome in self.runs.outcomes.values() if outcome.lost]

    def lost_in(self, arm: str) -> int:
        """Return the number of an arm's lost runs among the seeds of this look."""
        return sum(self.runs.outcomes[arm, seed].lost for seed in self.seeds)

    def reds(self, arm: str) -> list[Watched]:
        """Return the guards that call an arm's win into question."""
        return [watched for watched in self.guards.get(arm, ()) if watched.sign == "red"]


def analyse(runs: Runs, look: int | None = None) -> Analysis:
    """Analyse the runs at a look, by default the latest one that is due; the test ends when all arms are decided.

    There are no looks between the planned ones: runs after the latest look are ignored.
    """
    done = runs.look() if look is None else look
    for number in range(1, done + 1):
        found = _at(runs, number)
        if found.over:
            return found
    return _at(runs, done)


def _at(runs: Runs, look: int) -> Analysis:
    design = runs.registration.design
    size = design.look_sizes[look - 1] if look else 0
    seeds = design.seeds[:size]
    control = runs.results(design.control.name, seeds)
    arms = {arm.name: runs.results(arm.name, seeds) for arm in design.treatments}
    sign = 1.0 if design.goal == "max" else -1.0
    paired_arms = {
        name: values for name, values in arms.items() if len(results_of_pairs(control, values, sign, design.lost)[0])
    }
    found = (
        {}
        if not paired_arms
        else compare(
            control,
            paired_arms,
            higher_is_better=design.goal == "max",
            min_effect=design.min_effect,
            alpha=design.alpha,
            looks=design.look_sizes,
            lost=design.lost,
        )
    )
    comparisons = {
        name: attrs.evolve(each, verdict="identical") if runs.identical(name, seeds) else each
        for name, each in found.items()
    }
    tables = {name: prompts_of(runs, name, seeds, each.confidence) for name, each in comparisons.items()}
    analysis = Analysis(
        runs=runs,
        look=look,
        seeds=seeds,
        comparisons=comparisons,
        guards={name: watch(runs, name, seeds, each.verdict) for name, each in comparisons.items()},
        prompts={name: table for name, table in tables.items() if table},
        over=look == len(design.look_sizes),
    )
    return attrs.evolve(analysis, over=analysis.over or (look > 0 and analysis.decided))


def prompts_of(runs: Runs, arm: str, seeds: Sequence[int], confidence: float = 0.95) -> Prompts | None:
    """Return an arm's result prompt by prompt; None if it is not a metric of an evaluation, or was not kept."""
    design = runs.registration.design
    tables: dict[str, list[np.ndarray]] = {arm: [], design.control.name: []}
    for seed in seeds:
        both = {name: _by_prompt(runs, runs.outcomes[name, seed]) for name in tables}
        if all(values is not None for values in both.values()):
            for name, values in both.items():
                tables[name].append(values)  # pyright: ignore[reportArgumentType]
    sizes = {values.shape for rows in tables.values() for values in rows}
    if len(sizes) != 1:
        return None
    mine, control = np.array(tables[arm]), np.array(tables[design.control.name])
    there = (np.isfinite(mine) & np.isfinite(control)).all(axis=(0, 1))  # prompts that every run has a value of
    mine, control = mine[:, :, there].mean(1), control[:, :, there].mean(1)
    if mine.shape[1] < 2:
        return None
    difference: Table = (mine - control) if design.goal == "max" else (control - mine)
    binary = all(np.isin(rows, (0.0, 1.0)).all() for rows in (*tables[arm], *tables[design.control.name]))
    better, worse = (mine, control) if design.goal == "max" else (control, mine)
    return Prompts(
        control=control.mean(0),
        arm=mine.mean(0),
        interval=two_way_interval(difference, confidence),
        shares=variance_shares(difference),
        flips=flips(worse, better) if binary else None,
    )


def _by_prompt(runs: Runs, outcome: Outcome) -> Float[np.ndarray, "evaluation prompt"] | None:
    """The primary metric of each prompt at the evaluations of the window."""
    section, _, column = runs.registration.design.metric.partition("/")
    if section != "eval" or math.isnan(outcome.value):
        return None
    rows = {line["step"]: line[column] for line in runs.records(outcome, EVALUATIONS) if column in line}
    steps = runs.registration.design.window.steps(list(rows), runs.registration.steps[outcome.arm])
    sizes = {len(rows[step]) for step in steps}
    if len(sizes) != 1:
        return None
    return np.array([[math.nan if value is None else value for value in rows[step]] for step in steps], float)


def difference_curves(analysis: Analysis, arm: str) -> Curves:
    """Return the mean paired difference on the primary metric by step; positive is better."""
    runs, design = analysis.runs, analysis.registration.design
    sign = 1.0 if design.goal == "max" else -1.0
    found = []
    for seed in analysis.seeds:
        mine, control = (runs.outcomes[name, seed] for name in (arm, design.control.name))
        if not math.isnan(mine.value) and not math.isnan(control.value):
            left, right = (runs.drawn(each, design.metric) for each in (mine, control))
            found.append({step: sign * (left[step] - right[step]) for step in left.keys() & right.keys()})
    return mean_curves(found)


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the result as JSON, without the curves."""
    seeds = analysis.seeds
    arms = {}
    for name, comparison in analysis.comparisons.items():
        guards = [{**attrs.asdict(each), "guard": each.guard.label} for each in analysis.guards[name]]
        arms[name] = {**attrs.asdict(comparison), "lost": analysis.lost_in(name), "guards": guards}
        if prompts := analysis.prompts.get(name):
            kept = ("interval", "shares", "flips")
            arms[name]["prompts"] = {"count": len(prompts.arm)} | {
                key: getattr(prompts, key) and attrs.asdict(getattr(prompts, key)) for key in kept
            }
    runs = [
        {"arm": each.arm, "seed": each.seed, "id": each.id, "status": each.state.status, "value": each.value}
        | ({"reason": each.state.reason} if each.state.reason else {})
        for each in analysis.runs.outcomes.values()
        if each.seed in seeds
    ]
    return {
        "look": analysis.look,
        "pairs": len(seeds),
        "over": analysis.over,
        "doubts": list(analysis.runs.doubts),
        "decided": analysis.decided,
        "arms": arms,
        "runs": runs,
        "set_aside": list(analysis.runs.set_aside),
    }
