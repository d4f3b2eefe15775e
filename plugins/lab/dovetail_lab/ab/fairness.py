"""The part of an A/B test's report that watches what a win may have cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.guards import GUARDS, Guard, Watched
from dovetail_lab.ab.words import has_many_arms
from dovetail_lab.report.numbers import Unit, factor, p_value, ratio
from dovetail_lab.report.page import Cell, section, table

NOTE = (
    "The same paired statistics on what a win may have cost. Red: the arm wins the metric, and this got worse"
    " beyond its tolerance with an interval that leaves no change out; amber: it changed. The intervals are wider"
    " than 95 %, so that all of them together are so confident. A different step size at"
    " the same learning rate means that the learning rate may be what was compared."
)


def guards(analysis: Analysis) -> str:
    """Return the section, red where a win was bought; of many arms, only what has changed."""
    design = analysis.registration.design
    arms = [arm.name for arm in design.treatments if arm.name in analysis.guards]
    if not arms:
        return ""
    shown = _changes(analysis, arms) if has_many_arms(design) else _all_guards(analysis, arms)
    return section("Is it a fair win?", shown, f'<p class="muted">{NOTE}</p>')


def _changes(analysis: Analysis, arms: Sequence[str]) -> str:
    """A row for each guard of an arm that has changed."""
    rows: list[list[str | Cell]] = []
    for arm in arms:
        for each in analysis.guards[arm]:
            if each.metric and each.sign != "same":
                unit = _unit(each.guard)
                values = (Cell(unit.value(each.control), "n"), Cell(unit.value(each.arm), "n"))
                rows.append([arm, Cell(each.guard.label, title=each.metric), *values, _change(each, unit)])
        lost = _lost_row(analysis, [arm])
        if lost[-1].kind != "same":
            rows.append([arm, *lost])
    head = ["arm", "quantity", Cell(analysis.registration.design.control.name, "n"), Cell("arm's", "n"), "change"]
    return table(head, rows) if rows else '<p class="none">no guard has changed in any arm</p>'


def _all_guards(analysis: Analysis, arms: Sequence[str]) -> str:
    """A row for each guard, and two columns for each arm."""
    head: list[str | Cell] = [Cell("quantity"), Cell(analysis.registration.design.control.name, "n")]
    for arm in arms:
        head += [Cell(arm, "n"), Cell("change")]
    rows: list[list[Cell]] = []
    for index, guard in enumerate(GUARDS):
        watched = [analysis.guards[arm][index] for arm in arms]
        known = [each for each in watched if each.metric]
        unit = _unit(guard)
        row = [Cell(guard.label, title=known[0].metric if known else ", ".join(guard.metrics))]
        row.append(Cell(unit.value(known[0].control) if known else "not recorded", "n"))
        for each in watched:
            row += [Cell(unit.value(each.arm), "n"), _change(each, unit)] if each.metric else [Cell("–", "n"), Cell("")]
        rows.append(row)
    rows.append(_lost_row(analysis, arms))
    return table(head, rows)


def _unit(guard: Guard) -> Unit:
    return Unit.of(guard.metrics[0])


def _change(each: Watched, unit: Unit) -> Cell:
    """One cell: the factor or the difference, its interval, the p-value."""
    change = each.change
    if change is None:
        return Cell("")
    low, high = change.interval.low, change.interval.high
    if not change.is_ratio:
        text = f"{unit.difference(change.value)}  [{unit.interval(low, high)}]"
    else:
        ends = f"{factor(low)} to {factor(high)}" if math.isfinite(high) else "unknown"
        text = f"{ratio(change.value)}  [{ends}]"
    return Cell(text, each.sign, title=f"{each.sign}; t-test, adjusted for the number of guards: p {p_value(change.p)}")


def _lost_row(analysis: Analysis, arms: Sequence[str]) -> list[Cell]:
    control = analysis.lost_in(analysis.registration.design.control.name)
    row = [Cell("runs without a result"), Cell(str(control), "n")]
    for arm in arms:
        lost = analysis.lost_in(arm)
        worse = lost > control
        sign = ("red" if analysis.comparisons[arm].verdict == "better" else "changed") if worse else "same"
        row += [Cell(str(lost), "n"), Cell(f"{lost - control:+d}" if lost != control else "", sign)]
    return row
