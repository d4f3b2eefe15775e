"""The page of single runs: where they began and ended, their curves, their time, what they wrote."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from dovetail.config import load
from dovetail.errors import DovetailError, RunError
from dovetail.protocols import ASSISTANT
from dovetail.run.extended import CHANGES
from dovetail.run.files import read_json, read_record, read_text
from dovetail_kit.difference import difference
from dovetail_lab.evaluation.statistics import estimate
from dovetail_lab.recorded import figures, prompts, samples
from dovetail_lab.report.charts import COLORS, LARGEST, Line, both, color, lines
from dovetail_lab.report.curves import smoothed
from dovetail_lab.report.numbers import Unit, number, share
from dovetail_lab.report.page import Cell, escape, facts, figure, legend, page, paragraph, section, table
from dovetail_lab.report.timeline import timelines

RESULTS: Final = ("eval/accuracy", "eval/pass@1", "reward/mean")
"""What is drawn large, where it is recorded."""

BEHAVIOUR: Final = (
    "completion/length_mean",
    "completion/truncated",
    "lengths/fill",
    "entropy/mean",
    "kl/mean",
    "policy_loss/loss",
    "policy_loss/clip_fraction",
    "optimizer/grad_norm",
    "optimizer/update_norm",
    "optimizer/lr",
    "mismatch/kl_k3",
    "critic/loss",
)
"""What is drawn small; the rest is behind a fold."""

SHOWN_SAMPLES: Final = 8
ABOUT: Final = ("phase", "step")


@attrs.frozen(kw_only=True)
class Recorded:
    """A run's folder, read.

    Attributes:
        folder: where it is.
        name: what it is called: the end of its folder's path that no other run of the page has.
        color: number of its colour.
        identity: its run id and config id.
        metrics: the records of its RL phase.
        timings: wall-clock figures of both phases.
        samples: completions of its evaluations.
        prompts: what each prompt of an evaluation came to.
        starts: each start of it, with command and versions.
    """

    folder: Path
    name: str
    color: int
    identity: Mapping[str, str]
    metrics: Sequence[Mapping[str, Any]]
    timings: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    prompts: Sequence[Mapping[str, Any]]
    starts: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path, name: str, index: int) -> Recorded:
        """Read it.

        Raises:
            RunError: if what says which run it is cannot be read.
        """
        try:
            identity = read_record(folder / "run.json", run_id=str, config_id=str)
            starts = read_json(folder / "environment.json")
        except (OSError, ValueError) as error:
            raise RunError(f"'{folder}' cannot be read: {error}") from error
        if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
            raise RunError(f"'{folder / 'environment.json'}' does not hold a list of objects; restore it")
        return cls(
            folder=folder,
            name=name,
            color=index,
            identity=identity,
            metrics=figures(folder / "metrics.jsonl", "rl"),
            timings=figures(folder / "timings.jsonl"),
            samples=samples(folder / "samples.jsonl"),
            prompts=prompts(folder / "eval.jsonl"),
            starts=starts,
        )

    def curve(self, metric: str) -> dict[int, float]:
        """Return a metric by step."""
        return {line["step"]: line[metric] for line in self.metrics if metric in line}


def render(folders: Sequence[Path]) -> str:
    """Return the page as HTML.

    Raises:
        RunError: if a folder cannot be read.
    """
    named = zip(folders, names_of_folders(folders), strict=True)
    runs = [Recorded.read(folder, name, index) for index, (folder, name) in enumerate(named, start=1)]
    title = f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs"
    steps = max((line["step"] for run in runs for line in run.metrics), default=0)
    content = [
        _results(runs),
        _curves(runs),
        _time(runs),
        timelines([(run.name, run.folder) for run in runs]),
        _samples(runs[0]) if len(runs) == 1 else "",
        _differences(runs),
        *map(_about, runs),
    ]
    return page(title, f"{steps} steps · {', '.join(run.identity['run_id'] for run in runs)}", content)


def names_of_folders(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell folders apart, such as the runs `seed-0` of several experiments.

    >>> names_of_folders([Path("/a/x/seed-0"), Path("/a/y/seed-0"), Path("/a/y/seed-1")])
    ['x/seed-0', 'y/seed-0', 'seed-1']
    """
    parts = [folder.absolute().parts for folder in folders]
    names = [each[-1] for each in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        same = {name for name in names if names.count(name) > 1}
        names = [
            "/".join(each[-length:]).replace("//", "/") if name in same else name
            for name, each in zip(names, parts, strict=True)
        ]
    return names


def _results(runs: Sequence[Recorded]) -> str:
    """A row for each run and each result: first, last, best."""
    several = len(runs) > 1
    head = [
        *(["run"] if several else []),
        "metric",
        *(Cell(name, "n") for name in ("first", "last", "95 % interval", "best", "at step")),
    ]
    rows = []
    for run in runs:
        for metric in RESULTS:
            curve, unit = run.curve(metric), Unit.of(metric)
            if curve:
                steps = sorted(curve)
                known = [step for step in steps if not math.isnan(curve[step])] or steps
                best = max(known, key=curve.__getitem__)
                first, last, top = (unit.value(curve[step]) for step in (steps[0], steps[-1], best))
                values = (first, last, _interval(run, metric, steps[-1], unit), top, str(best))
                rows.append([*([run.name] if several else []), metric, *(Cell(value, "n") for value in values)])
    if not rows:
        return paragraph("No step of reinforcement learning is recorded yet.")
    note = "The interval is over the prompts of the last evaluation: it says nothing about other seeds."
    return table(head, rows) + (paragraph(note, "muted") if any(run.prompts for run in runs) else "")


def _interval(run: Recorded, metric: str, step: int, unit: Unit) -> str:
    """The interval of an evaluation, from the values of its prompts, where they are recorded."""
    name = metric.removeprefix("eval/")
    line = next((each for each in run.prompts if each.get("step") == step and (name in each or metric in each)), None)
    if line is None:
        return ""
    values = np.array([math.nan if x is None else x for x in line.get(name, line.get(metric))], float)
    found = estimate(values, (0, 1) if unit.percent else None)
    return f"{unit.value(found.low)} to {unit.value(found.high)}" if found else ""


def _curves(runs: Sequence[Recorded]) -> str:
    names = legend([(run.name, run.color) for run in runs]) if len(runs) > 1 else ""
    if len(runs) > COLORS:
        names += paragraph(f"There are {COLORS} colours: whoever points at a curve sees which run it is.", "muted")
    recorded = list(dict.fromkeys(name for run in runs for line in run.metrics for name in line))
    named = [name for name in recorded if name not in ABOUT]
    known = [name for name in named if any(_drawn(run, name) for run in runs)]
    missing = [name for name in named if name not in known]
    why = f"Not drawn, because every value is NaN or beyond what can be drawn: {', '.join(missing)}." if missing else ""
    large = [_chart(runs, metric) for metric in RESULTS if metric in known]
    small = [_chart(runs, metric, small=True) for metric in BEHAVIOUR if metric in known]
    rest = [_chart(runs, metric, small=True) for metric in sorted(known) if metric not in (*RESULTS, *BEHAVIOUR)]
    folded = f'<details><summary>All other metrics</summary><div class="grid3">{"".join(rest)}</div></details>'
    return section("Results", names, *large, paragraph(why, "muted") if why else "") + section(
        "On the way", names, f'<div class="grid3">{"".join(small)}</div>' if small else "", folded if rest else ""
    )


def _drawn(run: Recorded, metric: str) -> dict[int, float]:
    """Return the values of a curve that can be drawn, by step."""
    return {step: value for step, value in run.curve(metric).items() if abs(value) < LARGEST}


def _chart(runs: Sequence[Recorded], metric: str, *, small: bool = False) -> str:
    drawn = []
    for run in runs:
        curve = _drawn(run, metric)
        if not small and len(smoothed(curve)) < len(curve):
            drawn.append(Line(label=run.name, color=run.color, points=sorted(curve.items()), thin=True))
        drawn.append(Line(label=run.name, color=run.color, points=sorted(smoothed(curve).items())))
    unit, label = Unit.of(metric), f"{metric} by step"
    recorded, shown = (sum(len(each(run, metric)) for run in runs) for each in (Recorded.curve, _drawn))
    caption = f"without {recorded - shown} of {recorded} values, which are not finite" if shown < recorded else ""
    if small:
        return figure(lines(drawn, unit=unit, label=label, small=True), caption, metric)
    return figure(both(lambda width: lines(drawn, unit=unit, label=label, width=width)), caption, metric)


def _time(runs: Sequence[Recorded]) -> str:
    """Where the seconds went."""
    parts = []
    for run in runs:
        spent: dict[str, float] = {}
        for line in run.timings:
            for name, value in line.items():
                if name.startswith("time/") and name not in ("time/step", "time/tokens_per_second"):
                    key = "warm start" if line.get("phase") == "sft" else name.removeprefix("time/")
                    spent[key] = spent.get(key, 0.0) + value
        total = sum(spent.values())
        if not total:
            continue
        ordered = sorted(spent.items(), key=lambda pair: -pair[1])
        bars = "".join(
            f'<span style="--s:{color(index + 1)};flex:{seconds / total:.4f} 0 0"'
            f' title="{escape(name)}: {number(seconds)} s">{escape(name) if seconds > 0.08 * total else ""}</span>'
            for index, (name, seconds) in enumerate(ordered)
        )
        text = ", ".join(f"{name} {share(seconds / total)}" for name, seconds in ordered if seconds >= 0.005 * total)
        head = f"{run.name}: " if len(runs) > 1 else ""
        parts.append(f'<div class="shares">{bars}</div>{paragraph(f"{head}{number(total)} s: {text}.", "muted")}')
    return section("Time", *parts)


def _samples(run: Recorded) -> str:
    """What the last evaluation wrote, and how it was scored."""
    last = max((line["step"] for line in run.samples), default=0)
    at_last = {str(line.get("prompt", "")): line for line in reversed(run.samples) if line["step"] == last}
    shown = [*reversed(at_last.values())][:SHOWN_SAMPLES]  # the first completion of each prompt
    if shown and "messages" in shown[0]:
        return section(f"Episodes at step {last}", *map(episode, shown))
    given = {id(line): _given(line) for line in shown}
    names = list(dict.fromkeys(name for each in given.values() for name in each))
    rows = [
        [
            str(line.get("prompt", "")),
            *(str(given[id(line)].get(name, "")) for name in names),
            str(line.get("completion", "")),
            Cell(_score(line.get("score")), "n"),
        ]
        for line in shown
    ]
    head = ["prompt", *names, "completion", Cell("score", "n")]
    return section(f"Completions at step {last}", table(head, rows)) if rows else ""


def _given(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a completion was compared with: the expected answer, and other columns that the rewards read."""
    return ({"expected": record["expected"]} if "expected" in record else {}) | record.get("columns", {})


def episode(record: Mapping[str, Any]) -> str:
    """Return an episode as a conversation: who said what, and what each of the policy's turns was worth."""
    rewards = iter(record.get("turn_rewards", ()))
    said = [message("prompt", str(record.get("prompt", "")))]
    for each in record["messages"]:
        role = str(each.get("role", ""))
        worth = next(rewards, None) if role == ASSISTANT else None
        called = f"{role} {each['name']}" if each.get("name") else role
        said.append(message(called, str(each.get("content", "")), worth, ours=role == ASSISTANT))
    given = [f"{name}: {value}" for name, value in _given(record).items()]
    end = " · ".join([str(record.get("ended", "–")), f"score {_score(record.get('score'))}", *given])
    return f'<div class="episode">{"".join(said)}{paragraph(end, "muted")}</div>'


def message(who: str, text: str, worth: float | None = None, *, ours: bool = False) -> str:
    """Return one message of a conversation."""
    reward = f'<span class="worth">{escape(number(worth))}</span>' if worth is not None else ""
    kind = "said ours" if ours else "said"
    return f'<div class="{kind}"><b>{escape(who)}</b>{reward}<pre>{escape(text.strip())}</pre></div>'


def _score(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else "–"


def _differences(runs: Sequence[Recorded]) -> str:
    """How the configs of several runs differ from the first one's."""
    if len(runs) == 1:
        return ""
    try:
        first, *others = [load(run.folder / "config.gin", trusted=False) for run in runs]
    except DovetailError as error:
        return section("Differences", paragraph(f"A config cannot be read: {error}"))
    rows = [
        [run.name, "; ".join(difference(first, config)) or "none"] for run, config in zip(runs[1:], others, strict=True)
    ]
    return section("Differences", paragraph(f"Against {runs[0].name}:"), table(["run", "values"], rows))


def _about(run: Recorded) -> str:
    start = run.starts[-1] if run.starts else {}
    starts = f" (start {len(run.starts)})" if len(run.starts) > 1 else ""
    versions = [each for name in ("plugins", "libraries") if isinstance(each := start.get(name), dict)]
    libraries = dict(itertools.chain.from_iterable(each.items() for each in versions))
    return section(
        f"About {run.name}",
        facts(
            (
                ("folder", str(run.folder)),
                ("run id", run.identity["run_id"]),
                *_extended(run.identity),
                ("started", f"{start.get('time', '–')}{starts}"),
                ("command", _command(start)),
                (
                    "machine",
                    f"{start.get('platform', '–')}, {start.get('cpus', '–')} CPUs, Python {start.get('python', '–')}",
                ),
                ("versions", ", ".join(f"{name} {version}" for name, version in libraries.items())),
            )
        ),
        f"<details><summary>config.gin</summary><pre>{escape(_config(run))}</pre></details>",
    )


def _extended(identity: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the row of a run whose number of steps was changed."""
    found = identity.get(CHANGES)
    changes = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    lines = [f"{each.get('from')} → {each.get('to')} after step {each.get('after')}" for each in changes]
    return [("train.steps", ", ".join(lines))] if lines else []


def _command(start: Mapping[str, Any]) -> str:
    words = start.get("command")
    return " ".join(map(str, words)) if isinstance(words, list) else "–"


def _config(run: Recorded) -> str:
    try:
        return read_text(run.folder / "config.gin")
    except (OSError, ValueError) as error:
        return str(error)
