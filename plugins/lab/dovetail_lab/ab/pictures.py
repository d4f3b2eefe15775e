"""The pictures of an A/B test's report: curves, pairs, prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from dovetail_lab.ab.analysis import Analysis, Prompts, difference_curves
from dovetail_lab.ab.charts import changes, slopes
from dovetail_lab.ab.guards import GUARDS, METRICS
from dovetail_lab.ab.words import has_many_arms
from dovetail_lab.report import charts
from dovetail_lab.report.charts import Line
from dovetail_lab.report.curves import mean_curves, smoothed
from dovetail_lab.report.numbers import Unit, p_value, share
from dovetail_lab.report.page import Cell, escape, figure, legend, paragraph, section, table


def learning(analysis: Analysis) -> str:
    """Learning curves by arm, and the curve of differences; of many arms, a small chart for each."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    if has_many_arms(design):
        return section("Learning curves", small_curves(analysis))
    curves = _by_arm(analysis, design.metric)
    keys = legend([(arm.name, index, arm.in_full) for index, arm in enumerate(design.arms)])
    label = f"{design.metric} by step"
    drawn = charts.both(lambda width: charts.lines(curves, unit=unit, label=label, width=width))
    caption = "Mean over the seeds with its 95 % t interval at each step; thin: single runs."
    differences = []
    for index, arm in enumerate(design.treatments, 1):
        found = difference_curves(analysis, arm.name)
        points = list(zip(found.steps, found.mean, strict=True))
        low, high = _shown(found.low, found.high)
        differences.append(Line(label=arm.name, color=index, points=points, low=low, high=high))
    lower = charts.both(
        lambda width: charts.lines(
            differences, unit=unit.of_differences, label="difference by step", band=design.min_effect, width=width
        )
    )
    note = (
        f"Mean paired difference against {design.control.name} at each step, with its 95 % t interval; above zero is"
        " better. The verdict is about the registered window alone: an interval that leaves zero out somewhere on the"
        " way is not a finding."
    )
    return section(
        "Learning curves",
        keys,
        figure(drawn, caption),
        "<h3>Difference, points</h3>" if unit.percent else "<h3>Difference</h3>",
        figure(lower, note),
    )


def small_curves(analysis: Analysis) -> str:
    """Return a small chart of the learning curves of each arm and the control."""
    design = analysis.registration.design
    control, *others = _by_arm(analysis, design.metric, small=True)
    drawn = [
        figure(
            charts.lines(
                [control, attrs.evolve(line, color=1)],
                unit=Unit.of(design.metric),
                label=f"{design.metric} of {line.label} and {design.control.name} by step",
                small=True,
            ),
            title=line.label,
        )
        for line in others
    ]
    note = f"Mean over the seeds with its 95 % t interval at each step; grey: {design.control.name}."
    return f'<div class="grid3">{"".join(drawn)}</div>\n{paragraph(note, "muted")}'


def _by_arm(analysis: Analysis, metric: str, *, small: bool = False) -> list[Line]:
    """The curves of a metric: single runs behind, the means of the arms with their intervals before."""
    thin, bold = [], []
    for index, arm in enumerate(analysis.registration.design.arms):
        found = [smoothed(curve) for curve in analysis.runs.curves(arm.name, metric, analysis.seeds)]
        if len(found) > 1 and not small:
            thin += [Line(label=arm.name, color=index, points=sorted(curve.items()), thin=True) for curve in found]
        mean = mean_curves(found)
        low, high = _shown(mean.low, mean.high)
        points = list(zip(mean.steps, mean.mean, strict=True))
        bold.append(Line(label=arm.name, color=index, points=points, low=low, high=high))
    return [*thin, *bold]


def _shown(low: Sequence[float], high: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Intervals, unless they are infinite, as those of a single run are."""
    return (low, high) if all(map(math.isfinite, (*low, *high))) else ((), ())


def pairs(analysis: Analysis) -> str:
    """The slopes of the pairs, one chart for each arm; of many arms, for those decided."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    drawn = []
    for index, arm in enumerate(design.treatments, 1):
        if not _is_shown(analysis, arm.name):
            continue
        outcomes = [
            [analysis.runs.outcomes[name, seed] for name in (design.control.name, arm.name)] for seed in analysis.seeds
        ]
        results = [
            (str(before.seed), before.value, after.value)
            for before, after in outcomes
            if not math.isnan(before.value + after.value)
        ]
        if results:
            chart = slopes(
                results,
                (design.control.name, arm.name),
                unit=unit,
                up=design.goal == "max",
                index=index,
                label=f"results of {arm.name} and {design.control.name} by seed",
            )
            drawn.append(figure(chart, title=arm.name if len(design.treatments) > 1 else ""))
    caption = (
        "One line for each seed, whose number is on the right: from the control's result to the arm's. Red: worse."
    )
    inner = f'<div class="grid3">{"".join(drawn)}</div><p class="muted">{caption}</p>' if drawn else ""
    return section("Pair by pair", inner)


def prompts(analysis: Analysis) -> str:
    """Which prompts changed, and whether seeds or prompts make the result uncertain; of many arms, those decided."""
    shown = {arm: found for arm, found in analysis.prompts.items() if _is_shown(analysis, arm)}
    return section("Prompt by prompt", *(_prompt_part(analysis, arm, found) for arm, found in shown.items()))


def _is_shown(analysis: Analysis, arm: str) -> bool:
    """Return whether an arm has pictures of its own: of many arms, only those with a verdict."""
    found = analysis.comparisons.get(arm)
    decided = found is not None and found.verdict != "undecided"
    return decided or not has_many_arms(analysis.registration.design)


def _prompt_part(analysis: Analysis, arm: str, found: Prompts) -> str:
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    sign = 1.0 if design.goal == "max" else -1.0
    change = [sign * (mine - control) for mine, control in zip(found.arm, found.control, strict=True)]
    chart = changes(
        change,
        unit=unit.of_differences,
        color_of_gains=[each.name for each in design.arms].index(arm),
        label=f"change of each prompt, {arm}",
        x_label="prompts, from most gained to most lost",
    )
    rows = [[f"all, over {analysis.comparisons[arm].pairs} seeds", Cell(str(len(change)), "n")]]
    if found.flips:
        flips = found.flips
        rows += [
            ["gained: succeed more often", Cell(str(flips.gained), "n")],
            ["lost: succeed less often", Cell(str(flips.lost), "n")],
            ["unchanged", Cell(str(flips.same), "n")],
            ["McNemar's exact p", Cell(p_value(flips.p), "n")],
        ]
    text = table([arm, Cell("prompts", "n")], rows)
    caption = f"Each bar is a prompt: the change of its mean over seeds and window{', points' if unit.percent else ''}."
    return f'<div class="beside"><div>{text}{_shares(found)}</div>{figure(chart, caption)}</div>'


def _shares(found: Prompts) -> str:
    parts = (("seeds", found.shares.seeds, 1), ("prompts", found.shares.prompts, 2), ("noise", found.shares.rest, 0))
    if not sum(part for _, part, _ in parts):
        return ""
    bars = "".join(
        f'<span style="--s:{charts.color(index)};flex:{part:.4f} 0 0">{name if part > 0.15 else ""}</span>'
        for name, part, index in parts
    )
    text = ", ".join(f"{name} {share(part)}" for name, part, _ in parts)
    return (
        f'<div class="shares" role="img" aria-label="{text}">{bars}</div><p class="muted">Where the uncertainty of the'
        f" difference comes from: {escape(text)}. More seeds shrink the first, more prompts the second.</p>"
    )


def behaviour(analysis: Analysis) -> str:
    """The guards that are recorded step by step, as small curves; nothing for more arms than a curve can show."""
    arms = analysis.registration.design.arms
    if has_many_arms(analysis.registration.design):
        return ""
    drawn = []
    for guard in GUARDS:
        metric = next((m for m in guard.metrics if guard.file == METRICS and _recorded(analysis, m)), None)
        if metric:
            chart = charts.lines(
                _by_arm(analysis, metric, small=True), unit=Unit.of(metric), label=f"{metric} by step", small=True
            )
            drawn.append(figure(chart, metric, guard.label))
    if not drawn:
        return ""
    keys = legend([(arm.name, index, arm.in_full) for index, arm in enumerate(arms)])
    return section("On the way", keys, f'<div class="grid3">{"".join(drawn)}</div>')


def _recorded(analysis: Analysis, metric: str) -> bool:
    arms = analysis.registration.design.arms
    return any(curve for arm in arms for curve in analysis.runs.curves(arm.name, metric, analysis.seeds))
