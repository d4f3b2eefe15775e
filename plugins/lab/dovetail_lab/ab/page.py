"""`ab.html`: the report of an A/B test on one page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.charts import Estimate, forest
from dovetail_lab.ab.guards import GUARDS, Guard, Watched
from dovetail_lab.ab.outcomes import Outcome
from dovetail_lab.ab.paired import Interval
from dovetail_lab.ab.pictures import behaviour, learning, pairs, prompts
from dovetail_lab.ab.verdict import Comparison
from dovetail_lab.ab.words import caveats, doubtful, headline, lengths, sentence, sources
from dovetail_lab.report.charts import both
from dovetail_lab.report.numbers import Unit, factor, number, p_value, ratio, share
from dovetail_lab.report.page import Cell, escape, facts, figure, page, paragraph, section, table

LOST_RUNS: Mapping[str, str] = {
    "leave_out": "their pairs are left out",
    "worst": "count as the worst result of both arms",
}


def render(analysis: Analysis) -> str:
    """Return the report as HTML."""
    registration, design = analysis.registration, analysis.registration.design
    names = f"{' and '.join(arm.name for arm in design.treatments)} against {design.control.name}"
    subtitle = (
        f"{design.metric}, {'higher' if design.goal == 'max' else 'lower'} is better · mean of {design.window.text} ·"
        f" {registration.config}, {lengths(registration)} · {_progress(analysis)}"
    )
    doubts = [_box("warn", "not confirmatory", text.partition(": ")[2], []) for text in doubtful(analysis)]
    content = [*doubts, *_verdicts(analysis), *_amended(analysis)]
    if analysis.look:
        content += [
            _comparison(analysis),
            learning(analysis),
            pairs(analysis),
            _guards(analysis),
            prompts(analysis),
            behaviour(analysis),
        ]
    content += [_runs(analysis), _registration(analysis)]
    return page(f"A/B test: {names}", subtitle, content)


def _progress(analysis: Analysis) -> str:
    design = analysis.registration.design
    sizes = design.look_sizes
    if len(sizes) == 1:
        return f"{len(analysis.seeds) or analysis.runs.pairs(design.seeds)} of {len(design.seeds)} pairs"
    early = ", stopped early" if analysis.over and analysis.look < len(sizes) else ""
    return f"look {analysis.look} of {len(sizes)}, {len(analysis.seeds)} of {len(design.seeds)} pairs{early}"


def _verdicts(analysis: Analysis) -> list[str]:
    """The sentences at the top, with what is to be held against them."""
    if not analysis.look:
        return [_box("waiting", "not yet", headline(analysis)[0], [])]
    boxes = []
    for arm in analysis.treatments:
        found = analysis.comparisons.get(arm.name)
        verdict = found.verdict if found else "undecided"
        against = caveats(analysis, arm.name)
        kind = "warn" if analysis.reds(arm.name) else verdict
        boxes.append(_box(kind, verdict, sentence(analysis, arm.name), against))
    return boxes


def _box(kind: str, word: str, text: str, notes: Sequence[str]) -> str:
    return (
        f'<div class="verdict {kind}"><strong>{escape(word.capitalize())}.</strong>{escape(text)}'
        f"{''.join(paragraph(note) for note in notes)}</div>"
    )


def _amended(analysis: Analysis) -> list[str]:
    """Say that the design was changed on the way, and what that does to the p-values."""
    found = []
    for each in analysis.registration.amendments:
        late = " The p-values do not know of this choice." if each.pairs else ""
        found.append(
            _box(
                "warn",
                "amended",
                f"On {each.time}, after {each.pairs} finished pairs: {'; '.join(each.changes)}. Reason given:"
                f" {each.why}.{late}",
                [],
            )
        )
    return found


def _comparison(analysis: Analysis) -> str:
    """The forest plot, and every statistic of every arm."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    rows = []
    for index, arm in enumerate(design.treatments, 1):
        found = analysis.comparisons.get(arm.name)
        if found is None:
            continue
        intervals: list[tuple[str, Interval]] = [(arm.name, found.t), ("bootstrap (BCa)", found.bca)]
        if prompts := analysis.prompts.get(arm.name):
            intervals.append(("seeds and prompts", prompts.interval))
        for label, interval in intervals:
            rows.append(
                Estimate(
                    label=label,
                    value=found.mean,
                    low=interval.low,
                    high=interval.high,
                    text=f"{unit.difference(found.mean)} [{unit.interval(interval.low, interval.high)}]",
                    color=index,
                    light=label != arm.name,
                )
            )
    if not rows:
        return ""
    band = f"; the grey band is the registered minimum effect, ±{unit.length(design.min_effect)}"
    caption = (
        f"Mean paired difference against {design.control.name}, right of zero is better"
        f"{band if design.min_effect else ''}. The strong line is the paired t interval. The bootstrap is shown for"
        " comparison: with few seeds it is too narrow, and nothing is decided by it. The interval over seeds and"
        " prompts answers for other prompts, too."
    )
    chart = both(
        lambda width: forest(
            rows,
            unit=unit.of_differences,
            band=design.min_effect,
            label="differences with intervals",
            x_label="difference, points" if unit.percent else "difference",
            width=width,
        )
    )
    return section("Difference", figure(chart, caption), _statistics(analysis))


def _statistics(analysis: Analysis) -> str:
    unit = Unit.of(analysis.registration.design.metric)
    found = analysis.comparisons
    tones = {"better": "n good", "worse": "n bad"}
    rows: list[list[str | Cell]] = [
        ["verdict", *(Cell(each.verdict, tones.get(each.verdict, "n")) for each in found.values())]
    ]
    figures: Mapping[str, Callable[[Comparison], str]] = {
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
    for name, write in figures.items():
        rows.append([name, *(Cell(write(each), "n") for each in found.values())])
    return table(["", *(Cell(arm, "n") for arm in found)], rows)


def _finite(value: float, unit: Unit) -> str:
    return unit.length(value) if math.isfinite(value) else "–"


def _guards(analysis: Analysis) -> str:
    """The guard metrics, red where a win was bought."""
    design = analysis.registration.design
    arms = [arm.name for arm in design.treatments if arm.name in analysis.guards]
    if not arms:
        return ""
    head: list[str | Cell] = [Cell("quantity"), Cell(design.control.name, "n")]
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
    note = (
        "The same paired statistics on what a win may have cost. Red: the arm wins the metric, and this got worse"
        " beyond its tolerance with an interval that leaves no change out; amber: it changed. The intervals are wider"
        " than 95 %, so that all of them together are so confident. A different step size at"
        " the same learning rate means that the learning rate may be what was compared."
    )
    return section("Is it a fair win?", table(head, rows), f'<p class="muted">{note}</p>')


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


def _runs(analysis: Analysis) -> str:
    """Every run by seed and arm, those without a result with the reason."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    shown = set(analysis.seeds)
    head: list[str | Cell] = [Cell("seed"), *(Cell(arm.name, "n") for arm in design.arms)]
    rows = [
        [Cell(str(seed)), *(_run(analysis.runs.outcomes[arm.name, seed], unit, seed in shown) for arm in design.arms)]
        for seed in design.seeds
    ]
    lost = [
        [Cell(f"{each.arm}, seed {each.seed}"), Cell(each.state.status, "bad"), each.state.reason, each.id]
        for each in analysis.lost
    ]
    crashed = ["<h3>Without a result</h3>", table(["run", "status", "reason", "folder"], lost)] if lost else []
    aside = analysis.runs.set_aside
    if aside:
        crashed.append(
            paragraph(f"Folders that could not be read, kept in set-aside and begun again: {', '.join(aside)}.")
        )
    return section("Runs", table(head, rows), *crashed)


def _run(outcome: Outcome, unit: Unit, looked_at: bool) -> Cell:
    if not math.isnan(outcome.value):
        return Cell(unit.value(outcome.value) if looked_at else "done", "n", title=outcome.id)
    return Cell(outcome.state.status, "n bad" if outcome.lost else "n", title=outcome.state.reason)


def _registration(analysis: Analysis) -> str:
    """What was registered before the first run, and with what it ran."""
    registration, design = analysis.registration, analysis.registration.design
    terms: Mapping[str, str] = {
        "registered": f"{registration.registered}, seal {analysis.runs.seal}",
        "config": registration.config,
        "all arms": ", ".join(registration.sets) or "–",
        "control": f"{design.control.name}: {', '.join(design.control.overrides) or 'the config itself'}",
        **{arm.name: "; ".join(registration.differences[arm.name]) for arm in design.treatments},
        "primary metric": f"{design.metric}, {'higher' if design.goal == 'max' else 'lower'} is better",
        "window": design.window.text,
        "minimum effect": Unit.of(design.metric).length(design.min_effect),
        "seeds": ", ".join(map(str, design.seeds)),
        "runs without a result": LOST_RUNS[design.lost],
        "stop rule": f"{design.stop_rule}: looks after {', '.join(map(str, design.look_sizes))} pairs",
        "test": f"exact sign-flip test, two-sided, {design.alpha:.3g} over all arms (Holm) and looks",
        "versions": ", ".join(f"{name} {version}" for name, version in registration.versions.items()),
        "sources": ", ".join(sources(registration)).replace("`", ""),
    }
    return section("Registered", facts(terms.items()))
