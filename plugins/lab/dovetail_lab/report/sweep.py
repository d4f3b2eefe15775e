"""The page of a sweep: its settings, the best first, their curves, and what failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from dovetail_lab.report.charts import COLORS, Line, both, lines
from dovetail_lab.report.curves import mean_curves, smoothed
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.page import SORTING, Cell, figure, legend, page, paragraph, section, table
from dovetail_lab.report.parameters import importances, parameters, varied
from dovetail_lab.sweep.state import SETTLED, State
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.tables import Setting, alike_text, cells, names_of, ranks, settings_table
from dovetail_lab.sweep.terms import count
from dovetail_lab.sweep.trial import Trial

FLATTERED: Final = (
    "The best of many is flattered by the choice: run it again on other seeds, as an A/B test does, before it is"
    " believed."
)
SHOWN_TIES: Final = 6
BANDS: Final = 3
"""How many settings have their intervals drawn: those of more would cover one another."""
GOOD: Final = {"done": "good", "failed": "bad", "timeout": "bad", "corrupt": "bad"}


def render(store: Store, metric: str, goal: str) -> str:
    """Return the page as HTML.

    Raises:
        RunError: if no trial has the metric.
    """
    rows = settings_table(store, metric, goal)
    states = {trial: store.state(trial) for trial in store.trials}
    unit = Unit.of(metric)
    subtitle = (
        f"{store.record.get('config', '')} · {metric}, {'higher' if goal == 'max' else 'lower'} is better ·"
        f" {len(states)} trials: {count(state.status for state in states.values())}"
    )
    content = [
        _best(rows, metric, unit, goal, ended=all(state.status in SETTLED for state in states.values())),
        *map(paragraph, alike_text(store)),
        parameters(rows, metric, goal, unit),
        importances(rows, goal) if varied(rows) else "",
        _curves(store, rows, metric, unit),
        _settings(rows, unit),
        _trials(states),
        SORTING,
    ]
    return page(f"Sweep {store.path.absolute().name}", subtitle, content)


def _best(rows: Sequence[Setting], metric: str, unit: Unit, goal: str = "max", *, ended: bool) -> str:
    far = "" if ended else " so far"
    if not rows or rows[0].mean is None:
        return f'<div class="verdict waiting">{paragraph(_none_whole(rows, metric, unit, goal, ended=ended))}</div>'
    best, seeds = rows[0], len(rows[0].last)
    tied = [row for row in rows if row.mean is not None and unit.value(row.mean) == unit.value(rows[0].mean)]
    if len(tied) > 1:
        names = "; ".join(row.label for row in tied[:SHOWN_TIES])
        more = f" and {len(tied) - SHOWN_TIES} more" if len(tied) > SHOWN_TIES else ""
        text = f"Tied{far}, {metric} {unit.value(rows[0].mean)}: {names}{more}."
        return f'<div class="verdict equivalent">{paragraph(text)}{paragraph(FLATTERED, "muted")}</div>'
    over = f"mean of {seeds} seeds" if seeds > 1 else "one seed, so that nobody knows how much of it is chance"
    text = f"Best{far}: {best.label}, {metric} {unit.value(rows[0].mean)}, {over}."
    left = (
        f" {best.pruned} of its {len(best.trials)} seeds were stopped early and are not in the mean, which is that of"
        " the better ones."
        if best.pruned
        else ""
    )
    return f'<div class="verdict equivalent">{paragraph(text + left)}{paragraph(FLATTERED, "muted")}</div>'


def _none_whole(rows: Sequence[Setting], metric: str, unit: Unit, goal: str, *, ended: bool) -> str:
    """Say that no setting has a value, since only trials that were not stopped give it one."""
    if not ended:
        return "No trial has run to its end yet."
    values = [(row.best, row.label) for row in rows if row.best is not None]
    best, label = (max if goal == "max" else min)(values, default=(None, ""))
    way = "" if best is None else f" The best {metric} on the way was {unit.value(best)}, of {label}."
    return f"No trial has run to its end, so no setting has a value.{way}"


def _curves(store: Store, rows: Sequence[Setting], metric: str, unit: Unit) -> str:
    """The settings' mean curves, those beyond the palette in the background."""
    drawn, names = [], []
    for index, row in enumerate(rows):
        found = [smoothed(dict(store.curve(trial, metric))) for trial in row.trials]
        mean = mean_curves([curve for curve in found if curve])
        points = list(zip(mean.steps, mean.mean, strict=True))
        if index < COLORS:
            names.append((row.label, index, row.in_full))
        several = len(mean.low) > 0 and all(map(math.isfinite, mean.low)) and index < BANDS
        low, high = (mean.low, mean.high) if several else ((), ())
        drawn.append(Line(label=row.in_full, color=index, points=points, low=low, high=high, thin=index >= COLORS))
    drawn.sort(key=lambda line: not line.thin)
    left_out = f" Thin: the other {len(rows) - COLORS}." if len(rows) > COLORS else ""
    banded = f" of the best {BANDS}" if len(rows) > BANDS else ""
    caption = (
        "Mean over the seeds of each setting, at the steps that all of them have, with the 95 % t interval"
        f"{banded} where there are two seeds or more.{left_out}"
    )
    chart = both(lambda width: lines(drawn, unit=unit, label=f"{metric} by step", width=width))
    return section("Curves", legend(names), figure(chart, caption))


def _settings(rows: Sequence[Setting], unit: Unit) -> str:
    places = ranks(["" if row.mean is None else unit.value(row.mean) for row in rows])
    names = names_of(row.trials[0] for row in rows)
    head = [
        Cell("rank", "n"),
        *([Cell(name, title=key) for key, name in names.items()] or ["setting"]),
        Cell("seeds", "n"),
        Cell("mean of the last", "n"),
        Cell("± standard error", "n"),
        Cell("best", "n"),
    ]
    body = [
        [
            Cell(place, "n"),
            *(cells(row.trials[0], names) or [row.label]),
            Cell(row.seeds, "n"),
            *(Cell("" if x is None else unit.value(x), "n", value=x) for x in (row.mean, row.error, row.best)),
        ]
        for row, place in zip(rows, places, strict=True)
    ]
    note = "" if "=" not in "".join(places) else paragraph("= marks settings that are equal as written.", "muted")
    return section("Settings", note, table(head, body, sortable=True))


def _trials(states: Mapping[Trial, State]) -> str:
    head = ["trial", "what", "status", Cell("seconds", "n"), Cell("attempts", "n"), "why"]
    body = [
        [
            trial.id,
            Cell(trial.label, title=" ".join(f"{key}={value}" for key, value in trial.values.items())),
            Cell(state.status, GOOD.get(state.status, "")),
            Cell(f"{state.ended - state.started:.0f}" if state.ended and state.started else "", "n"),
            Cell(str(state.attempts), "n"),
            state.reason,
        ]
        for trial, state in states.items()
    ]
    return section("Trials", table(head, body, sortable=True))
