"""What an A/B test found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_lab.ab import paired
from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.design import FEW_PAIRS, Design
from dovetail_lab.ab.registration import Registration
from dovetail_lab.ab.sequential import pocock_level
from dovetail_lab.ab.verdict import Comparison
from dovetail_lab.report.numbers import Unit, p_value, ratio, share


def sentence(analysis: Analysis, arm: str) -> str:
    """Return the verdict on one arm in one plain sentence."""
    design = analysis.registration.design
    control = design.control.name
    found = analysis.comparisons.get(arm)
    if found is None:
        return f"Nothing can be said of {arm}: it and {control} have finished no seed in common."
    unit = Unit.of(design.metric)
    what = f"{design.metric} {unit.value(found.arm)} against {unit.value(found.control)}"
    evidence = _evidence(found, unit)
    match found.verdict:
        case "equivalent":
            within = unit.length(design.min_effect)
            return f"{arm} and {control} are equivalent, within ±{within}: {what}, {evidence}."
        case "undecided":
            return (
                f"The data do not tell whether {arm} is better or worse than {control}: {what}, {evidence}"
                f"{_missing(found, design)}."
            )
        case _:
            return f"{arm} is {found.verdict} than {control}: {what}, {evidence}."


def _evidence(found: Comparison, unit: Unit) -> str:
    pairs = counted(found.pairs, "pair")
    interval = f"{100 * found.confidence:.3g} % interval {unit.interval(found.t.low, found.t.high)}"
    return f"a difference of {unit.difference(found.mean)} ({interval}, p {_equals(found.adjusted_p)}, {pairs})"


def _equals(p: float) -> str:
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _missing(found: Comparison, design: Design) -> str:
    """Say what would tell."""
    unit = Unit.of(design.metric)
    if found.needed is None:
        return "" if design.min_effect else "; a --min-effect would tell how many seeds are needed"
    effect = unit.length(design.min_effect)
    if found.needed > found.pairs:
        return f"; to find {effect} takes about {found.needed:,} pairs in all"
    return f"; {found.pairs} pairs would have found a difference of {effect} in four cases of five"


def caveats(analysis: Analysis, arm: str) -> list[str]:
    """Return what to hold against a verdict: guards in red, lost runs, amendments."""
    found = []
    reds = analysis.reds(arm)
    if reds:
        what = ", ".join(f"{each.guard.label} {ratio(each.ratio)}" for each in reds)
        found.append(f"{arm} wins the metric, but spends more or drifts: {what}.")
    comparison = analysis.comparisons.get(arm)
    if comparison and comparison.mean == comparison.deviation == 0:
        found.append(
            f"Every run of {arm} has exactly the result of the control's: do the arms differ in what is computed? With"
            " one update per step, many losses have the same gradient."
        )
    lost = {name: analysis.lost_in(name) for name in (arm, analysis.registration.design.control.name)}
    for name, count in lost.items():
        if count:
            left_out = "its pair is" if count == 1 else "their pairs are"
            found.append(f"{name} lost {count} of {len(analysis.seeds)} runs; {left_out} left out of the comparison.")
    return found


def headline(analysis: Analysis) -> list[str]:
    """Return the verdict on each arm, one sentence each, or when there will be one."""
    design = analysis.registration.design
    if not analysis.look:
        first = design.look_sizes[0]
        done = analysis.runs.pairs(design.seeds)
        return [
            f"Nothing is compared yet: the first look is after {counted(first, 'pair')}, {done} of them finished so"
            " far. Looking earlier would make the test find differences that are not there."
        ]
    return [sentence(analysis, arm.name) for arm in design.treatments]


def counted(count: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "pair"), counted(8, "pair")
    ('1 pair', '8 pairs')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


def lengths(registration: Registration) -> str:
    """Say how long the runs are: of each arm, where they differ."""
    if len(set(registration.steps.values())) == 1:
        return counted(next(iter(registration.steps.values())), "step")
    return ", ".join(f"{arm} {counted(steps, 'step')}" for arm, steps in registration.steps.items())


def plan(design: Design, deviation: float | None) -> list[str]:
    """Return what the test can find, in lines, before any run: the planned power.

    Args:
        design: the test.
        deviation: standard deviation of the paired differences, where a pilot tells.
    """
    pairs, arms = len(design.seeds), len(design.treatments)
    level = pocock_level(len(design.look_sizes), design.alpha / arms)
    unit = Unit.of(design.metric)
    lines = []
    if paired.smallest_p(pairs) > level:
        lines.append(
            f"warning: {counted(pairs, 'pair')} cannot decide for an arm: the exact sign-flip test has no p-value below"
            f" {paired.smallest_p(pairs):.2g}, and {level:.2g} is needed. {FEW_PAIRS} pairs are the least"
            " for one arm and one look"
        )
    else:
        units = paired.detectable_effect(1.0, pairs, level)
        lines.append(
            f"power: {pairs} pairs find a difference of {units:.2f} standard deviations of the paired differences in"
            " four cases of five"
        )
    idle = [size for size in design.look_sizes[:-1] if paired.smallest_p(size) > level]
    if idle:
        lines.append(
            f"note: the looks after {_listed(idle)} pairs can find equivalence, but are too early for a winner"
        )
    if not design.min_effect:
        return [
            *lines,
            "note: without --min-effect nothing is ever called equivalent, and missing seeds are not counted",
        ]
    effect = unit.length(design.min_effect)
    if deviation is not None:
        chance = paired.power(design.min_effect, deviation, pairs, level)
        needed = paired.pairs_needed(design.min_effect, deviation, level)
        more = f"; {needed:,} pairs find it in four cases of five" if needed else ""
        spread = unit.length(deviation)
        lines.append(
            f"power: {effect} is found in {share(chance)} of cases if the differences deviate by {spread}{more}"
        )
    elif paired.smallest_p(pairs) <= level:
        enough = unit.length(design.min_effect / paired.detectable_effect(1.0, pairs, level))
        lines.append(
            f"power: {effect} is found so if the differences deviate by {enough} or less; --deviation takes the figure"
            " of a pilot"
        )
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
