"""A sweep in tables: one line for each trial, one for each setting over its seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Final

import attrs

from dovetail.errors import RunError, listing, nearest
from dovetail_lab.recorded import WHY_ALIKE, digits
from dovetail_lab.sweep.names import short_names, spelt_out
from dovetail_lab.sweep.progress import latest
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.terms import count
from dovetail_lab.sweep.trial import Trial

BASE: Final = "(the config itself)"
"""What a setting is called that sets nothing."""


@attrs.frozen(kw_only=True)
class Setting:
    """What one setting has come to over its seeds.

    Attributes:
        trials: its trials, one for each seed.
        last: the metric's last value of each trial that has run to its end, where it is finite.
        pruned: how many of its trials were stopped early. Their last value is that of an early step, which is not what
            a whole run would have come to, so it does not count.
        best: the best value that any of them had on the way.
        by_seed: `last`, by the seed of the run.
    """

    trials: tuple[Trial, ...]
    last: tuple[float, ...]
    pruned: int
    best: float | None
    by_seed: Mapping[int, float] = attrs.field(factory=dict)

    @property
    def label(self) -> str:
        """What it sets, each parameter by its short name."""
        return self.trials[0].setting or BASE

    @property
    def in_full(self) -> str:
        """What it sets, each parameter by its full name."""
        return " ".join(f"{key}={value}" for key, value in self.trials[0].values.items()) or BASE

    @property
    def seeds(self) -> str:
        """How many of its seeds are in the mean.

        >>> Setting(trials=(None, None), last=(0.5,), pruned=1, best=0.5).seeds
        '1/2, 1 stopped early'
        """
        early = f", {self.pruned} stopped early" if self.pruned else ""
        return f"{len(self.last)}/{len(self.trials)}{early}"

    @property
    def mean(self) -> float | None:
        """The mean over seeds of the last values."""
        return fmean(self.last) if self.last else None

    @property
    def error(self) -> float | None:
        """The standard error of that mean; None for fewer than two seeds."""
        return stdev(self.last) / math.sqrt(len(self.last)) if len(self.last) > 1 else None


def settings_table(store: Store, metric: str, goal: str) -> list[Setting]:
    """Return the settings, the best mean first, those without a value last.

    Raises:
        RunError: if no trial that has written anything has the metric, with the nearest name.
    """
    check_metric(store, metric)
    groups: dict[str, list[Trial]] = {}
    for trial in store.trials:
        groups.setdefault(trial.config_id, []).append(trial)
    made = [_setting(store, trials, metric, goal) for trials in groups.values()]
    sign = -1.0 if goal == "max" else 1.0
    return sorted(made, key=lambda row: math.inf if row.mean is None else sign * row.mean)


def _setting(store: Store, trials: Sequence[Trial], metric: str, goal: str) -> Setting:
    curves = {trial: store.curve(trial, metric) for trial in trials}
    statuses = {trial: store.state(trial).status for trial in trials}
    last = {trial.seed: curve[-1][1] for trial, curve in curves.items() if curve and statuses[trial] == "done"}
    finite = {seed: value for seed, value in last.items() if math.isfinite(value)}
    pruned = sum(status == "pruned" for status in statuses.values())
    values = [value for curve in curves.values() for _, value in curve if math.isfinite(value)]
    best = (max if goal == "max" else min)(values, default=None)
    return Setting(trials=tuple(trials), last=tuple(finite.values()), pruned=pruned, best=best, by_seed=finite)


def check_metric(store: Store, metric: str) -> None:
    """Refuse a metric that no trial has, once there is something to compare.

    Raises:
        RunError: with the nearest name.
    """
    known = {name for trial in store.trials for line in store.metrics(trial) for name in line} - {"phase", "step"}
    if known and metric not in known:
        raise RunError(f"no trial of '{store.path}' has a metric '{metric}'.{nearest(metric, known)} {listing(known)}")


def table_text(store: Store, metric: str, goal: str) -> str:
    """Return the settings as text: mean and standard error over seeds of the last value, and the best on the way."""
    rows = settings_table(store, metric, goal)
    names = names_of(store.trials)  # in the order of the space, whichever setting is the best
    lines = [(*(names.values() or ["setting"]), "seeds", metric, "±", "best")]
    for row in rows:
        figures = (_number(row.mean), _number(row.error, 2), _number(row.best))
        lines.append((*(cells(row.trials[0], names) or [BASE]), row.seeds, *figures))
    return "\n".join([align(lines), *spelt_out(names), *alike_text(store)])


def names_of(trials: Iterable[Trial]) -> dict[str, str]:
    """Return the headings of what trials vary: key -> short name."""
    return short_names(dict.fromkeys(key for trial in trials for key in trial.values))


def cells(trial: Trial, names: Mapping[str, str]) -> list[str]:
    """Return the values of a trial below those headings; empty where it does not have the parameter."""
    return [trial.values.get(key, "") for key in names]


def alike_text(store: Store) -> list[str]:
    """Return one line if settings have recorded the same numbers with every seed that they have finished, else none."""
    recorded: dict[str, dict[int, str]] = {}
    for trial in store.trials:
        if store.state(trial).status == "done" and (lines := store.metrics(trial)):
            recorded.setdefault(trial.config_id, {})[trial.seed] = digits(lines)
    labels = {trial.config_id: Setting(trials=(trial,), last=(), pruned=0, best=None).label for trial in store.trials}
    same: dict[tuple[tuple[int, str], ...], list[str]] = {}
    for config_id, by_seed in recorded.items():
        same.setdefault(tuple(sorted(by_seed.items())), []).append(labels[config_id])
    found = [names for names in same.values() if len(names) > 1]
    if not found:
        return []
    *first, last = found[0]
    others = ", as have others" if len(found) > 1 else ""
    why = WHY_ALIKE.format(what="settings")
    return [f"note: {', '.join(first)} and {last} have recorded the same numbers{others}. {why}"]


def status_text(store: Store) -> str:
    """Return one line for each trial: its id, its state, its step, how long it has taken, why it ended."""
    states = {trial: store.state(trial) for trial in store.trials}
    names = names_of(states)
    rows = [("trial", *names.values(), "seed", "status", "step", "time", "", "")]
    for trial, state in states.items():
        step, _ = latest(store, trial, "")
        tries = f"attempt {state.attempts}" if state.attempts > 1 else ""
        ended = state.ended or (time.time() if state.status == "running" else None)
        took = f"{ended - state.started:.0f} s" if ended and state.started else ""
        rows.append(
            (trial.id, *cells(trial, names), str(trial.seed), state.status, str(step), took, tries, state.reason)
        )
    driven = "a command is running it" if store.is_driven else "no command is running it"
    counts = count(state.status for state in states.values())
    return "\n".join([align(rows), *spelt_out(names), f"{counts}; {driven}"])


def ranks(shown: Sequence[str]) -> list[str]:
    """Return the places of values that are in order, as they are written; equal ones share a place.

    >>> ranks(["0.7", "0.6", "0.6", "0.5", ""])
    ['1', '2=', '2=', '4', '']
    """
    return [f"{shown.index(text) + 1}{'=' * (shown.count(text) > 1)}" if text else "" for text in shown]


def importance_text(store: Store, metric: str, goal: str) -> str:
    """Return the parameters and their importance as text.

    Raises:
        ConfigError: if there are too few settings, or Optuna is not installed.
    """
    from dovetail_lab.sweep.importance import importance

    rows = settings_table(store, metric, goal)
    found, names = importance(rows, goal), names_of(row.trials[0] for row in rows)
    shares = ((names[key], f"{100 * value:.0f} %") for key, value in found.items())
    return "\n".join([align([("parameter", "importance"), *shares]), *spelt_out({key: names[key] for key in found})])


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text with straight columns.

    >>> print(align([("a", "b"), ("longer", "c")]))
    a       b
    longer  c
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}"
