"""The part of an A/B test's report that compares: the forest plot, and every statistic of every arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.charts import Estimate, forest
from dovetail_lab.ab.paired import Interval
from dovetail_lab.ab.verdict import Comparison
from dovetail_lab.ab.words import has_many_arms
from dovetail_lab.report.charts import both
from dovetail_lab.report.numbers import Unit, number, p_value, share
from dovetail_lab.report.page import Cell, figure, section, table

TONES: Mapping[str, str] = {"better": "n good", "worse": "n bad"}


def comparison(analysis: Analysis) -> str:
    """Return the section; nothing if no arm can be compared yet. Many arms have one row each, the best one first."""
    if not analysis.comparisons:
        return ""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    many = has_many_arms(design)
    band = f"; the grey band is the registered minimum effect, ±{unit.length(design.min_effect)}"
    caption = (
        f"Mean paired difference against {design.control.name}, right of zero is better"
        f"{band if design.min_effect else ''}."
    )
    if many:
        caption += " The line is the paired t interval of that arm alone; arms without a verdict are grey."
    else:
        caption += (
            " The strong line is the paired t interval. The bootstrap is shown for comparison: with few seeds it is too"
            " narrow, and nothing is decided by it. The interval over seeds and prompts answers for other prompts, too."
        )
    chart = both(lambda width: differences(analysis, width))
    return section("Difference", figure(chart, caption), _table_by_arm(analysis) if many else _table(analysis))


def differences(analysis: Analysis, width: float) -> str:
    """Return the forest plot, of arms that can be compared."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    return forest(
        _ordered(analysis) if has_many_arms(design) else _all_intervals(analysis),
        unit=unit.of_differences,
        band=design.min_effect,
        label="differences with intervals",
        x_label="difference, points" if unit.percent else "difference",
        width=width,
    )


def _all_intervals(analysis: Analysis) -> list[Estimate]:
    """Each arm with its three intervals, in the order and colour of the arms."""
    unit = Unit.of(analysis.registration.design.metric)
    rows = []
    for index, arm in enumerate(analysis.treatments, 1):
        found = analysis.comparisons.get(arm.name)
        if found is None:
            continue
        intervals: list[tuple[str, Interval]] = [(arm.name, found.t), ("bootstrap (BCa)", found.bca)]
        if prompts := analysis.prompts.get(arm.name):
            intervals.append(("seeds and prompts", prompts.interval))
        for label, interval in intervals:
            rows.append(_estimate(label, found.mean, interval, unit, index, light=label != arm.name))
    return rows


def _ordered(analysis: Analysis) -> list[Estimate]:
    unit = Unit.of(analysis.registration.design.metric)
    return [
        _estimate(arm, found.mean, found.t, unit, 0 if found.verdict == "undecided" else 1)
        for arm, found in _best_first(analysis)
    ]


def _best_first(analysis: Analysis) -> list[tuple[str, Comparison]]:
    return sorted(analysis.comparisons.items(), key=lambda item: -item[1].mean)


def _estimate(label: str, value: float, interval: Interval, unit: Unit, color: int, *, light: bool = False) -> Estimate:
    text = f"{unit.difference(value)} [{unit.interval(interval.low, interval.high)}]"
    return Estimate(label=label, value=value, low=interval.low, high=interval.high, text=text, color=color, light=light)


def _table(analysis: Analysis) -> str:
    """A column for each arm."""
    found, figures = analysis.comparisons, _figures(analysis)
    rows: list[list[str | Cell]] = [["verdict", *map(_verdict, found.values())]]
    rows += [[name, *(Cell(write(each), "n") for each in found.values())] for name, write in figures.items()]
    design = analysis.registration.design
    return table(["", *(Cell(arm, "n", title=design.arm(arm).in_full) for arm in found)], rows)


def _table_by_arm(analysis: Analysis) -> str:
    """A row for each arm."""
    figures = _figures(analysis)
    rows: list[Sequence[str | Cell]] = [
        [
            Cell(arm, title=analysis.registration.design.arm(arm).in_full),
            _verdict(found),
            *(Cell(write(found), "n") for write in figures.values()),
        ]
        for arm, found in _best_first(analysis)
    ]
    return table(["", Cell("verdict", "n"), *(Cell(name, "n") for name in figures)], rows)


def _verdict(found: Comparison) -> Cell:
    return Cell(found.verdict, TONES.get(found.verdict, "n"))


def _figures(analysis: Analysis) -> Mapping[str, Callable[[Comparison], str]]:
    """Every statistic by name, and how it is written."""
    unit = Unit.of(analysis.registration.design.metric)
    return {
        "pairs": lambda each: str(each.pairs),
        "mean of the control": lambda each: unit.value(each.control),
        "mean of the arm": lambda each: unit.value(each.arm),
        "difference": lambda each: unit.difference(each.mean),
        "difference of interquartile means": lambda each: unit.difference(each.iqm),
        "p, exact sign-flip test": lambda each: p_value(each.p),
        "p, adjusted for looks and arms": lambda each: p_value(each.adjusted_p),
        "p of equivalence, adjusted": lambda each: p_value(each.equivalence_p),
        "skewness of the differences": lambda each: number(round(each.symmetry.skewness, 1)),
        "a run of the arm beats one of the control": lambda each: share(each.improvement),
        "correlation of the arms over seeds": lambda each: number(round(each.correlation, 2)),
        "standard deviation of the differences": lambda each: unit.length(each.deviation),
        "smallest difference found in four cases of five": lambda each: _finite(each.detectable, unit),
        "pairs needed for the minimum effect": lambda each: "–" if each.needed is None else f"{each.needed:,}",
    }


def _finite(value: float, unit: Unit) -> str:
    return unit.length(value) if math.isfinite(value) else "–"
