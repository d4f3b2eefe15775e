"""`ab.html`: the report of an A/B test on one page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.comparison import comparison
from dovetail_lab.ab.fairness import guards
from dovetail_lab.ab.outcomes import Outcome
from dovetail_lab.ab.pictures import behaviour, learning, pairs, prompts
from dovetail_lab.ab.words import (
    doubtful,
    has_many_arms,
    lengths,
    sources,
    statements,
    title,
    too_early,
)
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.page import Cell, box, facts, page, paragraph, section, table

LOST_RUNS: Mapping[str, str] = {
    "leave_out": "their pairs are left out",
    "worst": "count as the worst result of both arms",
}


def render(analysis: Analysis) -> str:
    """Return the report as HTML."""
    registration, design = analysis.registration, analysis.registration.design
    subtitle = (
        f"{design.metric}, {'higher' if design.goal == 'max' else 'lower'} is better · mean of {design.window.text} ·"
        f" {registration.config}, {lengths(registration)} · {_progress(analysis)}"
    )
    content = [*doubts(analysis), *verdicts(analysis), *_amended(analysis)]
    if analysis.look:
        content += [
            comparison(analysis),
            learning(analysis),
            pairs(analysis),
            guards(analysis),
            prompts(analysis),
            behaviour(analysis),
        ]
    content += [_runs(analysis), _registration(analysis)]
    return page(f"A/B test: {title(design)}", subtitle, content)


def _progress(analysis: Analysis) -> str:
    design = analysis.registration.design
    sizes = design.look_sizes
    if len(sizes) == 1:
        return f"{len(analysis.seeds) or analysis.runs.pairs(design.seeds)} of {len(design.seeds)} pairs"
    early = ", stopped early" if analysis.over and analysis.look < len(sizes) else ""
    return f"look {analysis.look} of {len(sizes)}, {len(analysis.seeds)} of {len(design.seeds)} pairs{early}"


def doubts(analysis: Analysis) -> list[str]:
    """Return why the verdicts do not confirm what was registered; nothing if they do."""
    reasons = [text.partition(": ")[2] for text in doubtful(analysis)]
    return [box("warn", "not confirmatory", why[:1].upper() + why[1:], []) for why in reasons]


def verdicts(analysis: Analysis) -> list[str]:
    """Return the sentences at the top, with what is to be held against them."""
    if early := too_early(analysis):
        return [box("waiting", "not yet", early, [])]
    return [
        box("warn" if each.red else each.verdict, each.verdict, each.text, each.caveats)
        for each in statements(analysis)
    ]


def _amended(analysis: Analysis) -> list[str]:
    """Say that the design was changed on the way, and what that does to the p-values."""
    found = []
    for each in analysis.registration.amendments:
        late = " The p-values do not know of this choice." if each.pairs else ""
        found.append(
            box(
                "warn",
                "amended",
                f"On {each.time}, after {each.pairs} finished pairs: {'; '.join(each.changes)}. Reason given:"
                f" {each.why}.{late}",
                [],
            )
        )
    return found


def _runs(analysis: Analysis) -> str:
    """Every run by seed and arm, those without a result with the reason."""
    design, unit = analysis.registration.design, Unit.of(analysis.registration.design.metric)
    shown = set(analysis.seeds)
    results = [
        [_run(analysis.runs.outcomes[arm.name, seed], unit, seed in shown) for arm in design.arms]
        for seed in design.seeds
    ]
    seeds = [Cell(str(seed), "n") for seed in design.seeds]
    arms = [Cell(arm.name, "n", title=arm.in_full) for arm in design.arms]
    if has_many_arms(design):
        runs = _grid("arm", seeds, arms, zip(*results, strict=True))
    else:
        runs = _grid("seed", arms, seeds, results)
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
    return section("Runs", runs, *crashed)


def _grid(what: str, head: Sequence[Cell], names: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    named = [[attrs.evolve(name, kind=""), *row] for name, row in zip(names, rows, strict=True)]
    return table([Cell(what), *head], named)


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
        "control": f"{design.control.name}: {design.control.in_full}",
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
