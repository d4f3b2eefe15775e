"""A sweep for other programs and for people who were not there: csv, json, html."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.tables import check_metric
from dovetail_lab.sweep.trial import Trial

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a formula begins with in a spreadsheet; one of a stranger's folder may call other programs."""


def export(store: Store, form: str, metric: str, goal: str) -> str:
    """Return a sweep as text in a form: `csv`, `json` or `html`.

    csv and json have the last value of every metric that a trial has written; json and html the whole curve of one.

    Raises:
        RunError: if no trial has the metric.
    """
    check_metric(store, metric)
    return {"csv": _csv, "json": _json, "html": _html}[form](store, metric, goal)


def record(store: Store, trial: Trial) -> dict[str, Any]:
    """Return a trial as a flat record: what it sets, how it stands, the last value of each of its metrics."""
    state = store.state(trial)
    last: dict[str, Any] = {}
    for line in store.metrics(trial):
        last |= line
    took = state.ended - state.started if state.ended and state.started else None
    about = {"id": trial.id, "seed": trial.seed, "status": state.status, "attempts": state.attempts, "seconds": took}
    metrics = {name: value for name, value in last.items() if name not in ("phase", "step")}
    return about | {"reason": state.reason} | trial.settings | {"step": last.get("step", 0)} | metrics


def _csv(store: Store, metric: str, goal: str) -> str:
    records = [record(store, trial) for trial in store.trials]
    columns = dict.fromkeys(name for each in records for name in each)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(cell, columns))
    writer.writerows([cell(each.get(name, "")) for name in columns] for each in records)
    return out.getvalue()


def cell(value: Any) -> Any:
    """Return a value for a table: before a text that a spreadsheet would take for a formula comes an apostrophe.

    >>> cell("=1+1"), cell("-"), cell(-0.5), cell("a-b")
    ("'=1+1", "'-", -0.5, 'a-b')
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _json(store: Store, metric: str, goal: str) -> str:
    trials = [
        {"overrides": list(trial.overrides), **record(store, trial), "curve": store.curve(trial, metric)}
        for trial in store.trials
    ]
    about = {name: value for name, value in store.record.items() if name != "trials"}
    return json.dumps(about | {"metric": metric, "goal": goal, "trials": trials}, indent=2) + "\n"


def _html(store: Store, metric: str, goal: str) -> str:
    from dovetail_lab.report.sweep import render

    return render(store, metric, goal)
