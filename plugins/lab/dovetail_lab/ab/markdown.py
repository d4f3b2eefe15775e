"""`ab.md`: the report of an A/B test as text for a pull request or a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.words import PROTECTED, changed, doubtful, sources, statements, title, too_early
from dovetail_lab.report.numbers import Unit, p_value, share


def render(analysis: Analysis) -> str:
    """Return the report as Markdown."""
    registration, design = analysis.registration, analysis.registration.design
    lines = [f"# {title(design)}", ""]
    early = too_early(analysis)
    found = [] if early else statements(analysis)
    first = [*doubtful(analysis), *([early] if early else []), *(each.text for each in found)]
    lines += [f"**{text}**\n" for text in first]
    lines += [f"* {text}" for text in dict.fromkeys(text for each in found for text in each.caveats)]
    for each in registration.amendments:
        lines.append(
            f"* Amended on {each.time} after {each.pairs} pairs: {'; '.join(each.changes)}. Reason: {each.why}"
        )
    if analysis.comparisons:
        lines += ["", *_statistics(analysis), "", *_guards(analysis)]
    lines += ["", *_prompts(analysis), *_lost(analysis), "## Registered", ""]
    lines += [
        f"* config `{registration.config}`{''.join(f' `{each}`' for each in registration.sets)}",
        *(
            f"* {arm.name}: {', '.join(f'`{each}`' for each in arm.overrides) or 'the config itself'}"
            for arm in design.arms
        ),
        f"* {design.metric}, {'higher' if design.goal == 'max' else 'lower'} is better; window {design.window.text};"
        f" minimum effect {design.min_effect:g}",
        f"* seeds {', '.join(map(str, design.seeds))}; {design.stop_rule}, looks after"
        f" {', '.join(map(str, design.look_sizes))} pairs; level {design.alpha:g}",
        f"* on {registration.registered}; seal `{analysis.runs.seal}`",
        f"* {', '.join(f'{name} {version}' for name, version in registration.versions.items())}",
        f"* sources: {', '.join(sources(registration))}",
        "",
        "## What this record protects",
        "",
        *PROTECTED,
        "",
    ]
    return "\n".join(lines)


def _statistics(analysis: Analysis) -> list[str]:
    unit = Unit.of(analysis.registration.design.metric)
    head = ("arm", "verdict", "pairs", "control", "arm's", "difference", "interval", "p, adjusted", "beats control")
    rows = [
        (
            name,
            each.verdict,
            str(each.pairs),
            unit.value(each.control),
            unit.value(each.arm),
            unit.difference(each.mean),
            unit.interval(each.t.low, each.t.high),
            p_value(each.adjusted_p),
            share(each.improvement),
        )
        for name, each in analysis.comparisons.items()
    ]
    return _table(head, rows)


def _guards(analysis: Analysis) -> list[str]:
    rows = []
    for arm, guards in analysis.guards.items():
        for each in guards:
            if each.metric:
                unit = Unit.of(each.metric)
                mark = {"red": "**red**", "changed": "changed"}.get(each.sign, "")
                values = (unit.value(each.control), unit.value(each.arm), changed(each))
                rows.append((arm, each.guard.label, *values, mark))
    return _table(("arm", "guard", "control", "arm's", "change", ""), rows)


def _prompts(analysis: Analysis) -> list[str]:
    lines = []
    for arm, found in analysis.prompts.items():
        shares = found.shares
        text = f"* {arm}, {len(found.arm)} prompts: "
        if found.flips:
            text += f"{found.flips.gained} gained, {found.flips.lost} lost (McNemar p {p_value(found.flips.p)}); "
        parts = f"seeds {share(shares.seeds)}, prompts {share(shares.prompts)}, noise {share(shares.rest)}"
        known = shares.seeds + shares.prompts + shares.rest > 0
        lines.append(f"{text}variance from {parts}" if known else f"{text}variance unknown")
    return [*lines, ""] if lines else []


def _lost(analysis: Analysis) -> list[str]:
    lines = [
        f"* {each.arm}, seed {each.seed}: {each.state.status}, {each.state.reason or 'no reason known'} (`{each.id}`)"
        for each in analysis.lost
    ]
    lines += [f"* `set-aside/{name}` could not be read; the run was begun again" for name in analysis.runs.set_aside]
    return ["## Runs without a result", "", *lines, ""] if lines else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
