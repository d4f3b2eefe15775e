"""What an A/B test found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from dovetail_lab.ab import paired
from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.design import FEW_PAIRS, Design
from dovetail_lab.ab.guards import Watched
from dovetail_lab.ab.registration import Registration
from dovetail_lab.ab.sequential import pocock_level
from dovetail_lab.ab.symmetry import unseen_rate
from dovetail_lab.ab.verdict import Comparison
from dovetail_lab.recorded import WHY_ALIKE
from dovetail_lab.report.numbers import Unit, p_value, ratio, share

FEW_ARMS = 4
"""With more arms besides the control, a report has a row for each instead of a box, a chart or columns."""


def has_many_arms(design: Design) -> bool:
    """Return whether there are more arms than a reader can take in one by one."""
    return len(design.treatments) > FEW_ARMS


def title(design: Design) -> str:
    """Return what is compared with what."""
    names = " and ".join(arm.name for arm in design.treatments)
    return f"{f'{len(design.treatments)} arms' if has_many_arms(design) else names} against {design.control.name}"


def sentence(analysis: Analysis, arm: str) -> str:
    """Return the verdict on one arm in one plain sentence."""
    design = analysis.registration.design
    control = design.control.name
    found = analysis.comparisons.get(arm)
    if found is None:
        return f"Nothing can be said of {arm}: it and {control} have finished no seed in common."
    unit = Unit.of(design.metric)
    what = f"{design.metric} {unit.value(found.arm)} against {unit.value(found.control)}"
    evidence = _evidence(found, design)
    match found.verdict:
        case "equivalent":
            within = unit.length(design.min_effect)
            return f"{arm} and {control} are equivalent, within ±{within}: {what}, {evidence}."
        case "identical":
            return (
                f"{arm} and {control} are identical: in all {counted(found.pairs, 'pair')} their runs have recorded the"
                f" same numbers. {WHY_ALIKE.format(what='arms')}"
            )
        case "undecided":
            return (
                f"The data do not tell whether {arm} is better or worse than {control}: {what}, {evidence}"
                f"{_missing(found, design)}."
            )
        case _:
            return f"{arm} is {found.verdict} than {control}: {what}, {evidence}."


def _evidence(found: Comparison, design: Design) -> str:
    unit, pairs = Unit.of(design.metric), counted(found.pairs, "pair")
    p = f"p {_equals(found.adjusted_p)}"
    if found.verdict == "equivalent":
        p = f"p of a difference of {unit.length(design.min_effect)} or more {_equals(found.equivalence_p)}"
    interval = f"{100 * found.confidence:.3g} % interval {unit.interval(found.t.low, found.t.high)}"
    return f"a difference of {unit.difference(found.mean)} ({interval}, {p}, {pairs})"


def _equals(p: float) -> str:
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _missing(found: Comparison, design: Design) -> str:
    """Say what would tell."""
    unit = Unit.of(design.metric)
    if found.needed is None:
        return "" if design.min_effect else "; a --min-effect would tell how many seeds are needed"
    effect = unit.length(design.min_effect)
    if found.needed > found.pairs:
        return f"; to find {effect} takes about {found.needed:,} pairs in all"
    return f"; {found.pairs} pairs would have found a difference of {effect} in four cases of five"


def caveats(analysis: Analysis, arm: str) -> list[str]:
    """Return what to hold against a verdict: guards in red, what the test assumes, lost runs."""
    found = []
    reds = analysis.reds(arm)
    if reds:
        what = ", ".join(f"{each.guard.label} {changed(each)}" for each in reds)
        found.append(f"{arm} wins the metric, but spends more or drifts: {what}.")
    comparison = analysis.comparisons.get(arm)
    if comparison:
        found += _assumed(comparison, arm)
    lost = {name: analysis.lost_in(name) for name in (arm, analysis.registration.design.control.name)}
    for name, count in lost.items():
        if count:
            found.append(f"{name} lost {count} of {len(analysis.seeds)} runs{_of_lost(analysis, count)}.")
    return found


def _of_lost(analysis: Analysis, count: int) -> str:
    """Say what lost runs count as."""
    if analysis.registration.design.lost == "worst":
        return f", which {'counts' if count == 1 else 'count'} as the worst result of both arms"
    return f"; {'its pair is' if count == 1 else 'their pairs are'} left out of the comparison"


def _assumed(found: Comparison, arm: str) -> list[str]:
    """Say what the verdict assumes, what speaks against it, and what so few pairs cannot show."""
    notes, shape = [], found.symmetry
    if found.verdict == "identical":
        return []
    if found.mean == found.deviation == 0:
        notes.append(f"Every run of {arm} has exactly the result of the control's, though not the same curve.")
    if shape.one_sided:
        count, side = abs(shape.one_sided), "for" if shape.one_sided > 0 else "against"
        lies = "One difference lies" if count == 1 else f"{count} differences lie"
        notes.append(
            f"{lies} far from the others, {side} {arm}: look at the curves of those pairs for a run that collapsed."
            " The mean depends on them, and the test assumes that such a thing happens to both arms alike."
        )
    elif shape.lopsided:
        notes.append(
            f"The differences of {arm} are lopsided (skewness {shape.skewness:.1f}, p {_equals(shape.p)}), where the"
            " test assumes that they are symmetric about their mean: its p-value is not exact."
        )
    if found.verdict != "undecided":
        notes.append(
            f"The verdict on {arm} assumes that nothing rare sets the arms apart: a collapse in up to"
            f" {share(unseen_rate(found.pairs))} of the seeds may have been missed by {counted(found.pairs, 'pair')}."
        )
    return notes


def changed(watched: Watched) -> str:
    """Write the change of a guard: a factor, or a difference where there is none."""
    if watched.change is None:
        return ""
    if watched.change.is_ratio:
        return ratio(watched.change.value)
    return Unit.of(watched.guard.metrics[0]).difference(watched.change.value)


def doubtful(analysis: Analysis) -> list[str]:
    """Return why the verdicts do not confirm what was registered, in one paragraph; none: they do."""
    found = analysis.runs.doubts
    if not found:
        return []
    return [f"Not confirmatory: {'; '.join(found)}. The p-values below do not know of this."]


@attrs.frozen
class Statement:
    """A verdict, said of one arm, or of all undecided ones where there are many.

    Attributes:
        verdict: as in `Comparison`.
        text: the sentence.
        caveats: what is to be held against it.
        red: whether a guard of the arm is red.
    """

    verdict: str
    text: str
    caveats: Sequence[str]
    red: bool = False


def statements(analysis: Analysis) -> list[Statement]:
    """Return what was found, after the first look."""
    design = analysis.registration.design
    found, undecided = [], []
    for arm in design.treatments:
        comparison = analysis.comparisons.get(arm.name)
        verdict = comparison.verdict if comparison else "undecided"
        if verdict == "undecided" and has_many_arms(design):
            undecided.append(arm.name)
            continue
        against, red = caveats(analysis, arm.name), bool(analysis.reds(arm.name))
        found.append(Statement(verdict, sentence(analysis, arm.name), against, red))
    if undecided:
        names, control = ", ".join(undecided), design.control.name
        text = f"The data do not tell whether these are better or worse than {control}: {names}."
        against = dict.fromkeys(text for arm in undecided for text in caveats(analysis, arm))
        found.append(Statement("undecided", text, list(against)))
    return found


def too_early(analysis: Analysis) -> str | None:
    """Say when there will be a verdict, if there is none yet."""
    if analysis.look:
        return None
    design = analysis.registration.design
    first, done = design.look_sizes[0], analysis.runs.pairs(design.seeds)
    return (
        f"Nothing is compared yet: the first look is after {counted(first, 'pair')}, {done} of them finished so"
        " far. Looking earlier would make the test find differences that are not there."
    )


def found(analysis: Analysis) -> str:
    """Return the verdicts with what is to be held against them, for the terminal and for notebooks."""
    lines = doubtful(analysis)
    if early := too_early(analysis):
        return "\n".join([*lines, early])
    for each in statements(analysis):
        lines += [each.text, *(f"  {note}" for note in each.caveats)]
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "pair"), counted(8, "pair")
    ('1 pair', '8 pairs')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


PROTECTED = (
    "These things are detected and reported above: the design in `ab.json` differs from that of `journal.jsonl` and"
    " `sweep.json`; a record of a run changes after the run has finished; a run is repeated after a look and its result"
    " differs; the design or a version is amended after a look; the sources of a plugin in use change between the runs;"
    " the registration is younger than the first run.",
    "",
    "These are not: somebody rewrites the whole folder with all its hashes (compare the seal with the one that was"
    " printed before the first run, if you kept it elsewhere); the same seeds were tried in a folder far from this one;"
    " somebody looked into the folders of the runs before a registered look.",
)
"""What the record of a test shows of its history, and what it cannot; paragraphs."""


def sources(registration: Registration) -> list[str]:
    """Return each package or file in use with its hash, and the commit where one is checked out."""
    commits = registration.commits
    return [
        f"{name} `{digest}`{f' at {commits[name]}' if name in commits else ''}"
        for name, digest in registration.sources.items()
    ]


def lengths(registration: Registration) -> str:
    """Say how long the runs are: of each arm, where they differ."""
    if len(set(registration.steps.values())) == 1:
        return counted(next(iter(registration.steps.values())), "step")
    return ", ".join(f"{arm} {counted(steps, 'step')}" for arm, steps in registration.steps.items())


def plan(design: Design, deviation: float | None) -> list[str]:
    """Return what the test can find, in lines, before any run: the planned power.

    Args:
        design: the test.
        deviation: standard deviation of the paired differences, where a pilot tells.
    """
    pairs, arms = len(design.seeds), len(design.treatments)
    level = pocock_level(design.look_sizes, design.alpha / arms)
    unit = Unit.of(design.metric)
    lines = []
    if paired.smallest_p(pairs) > level:
        lines.append(
            f"warning: {counted(pairs, 'pair')} cannot decide for an arm: the exact sign-flip test has no p-value below"
            f" {paired.smallest_p(pairs):.2g}, and {level:.2g} is needed. {FEW_PAIRS} pairs are the least"
            " for one arm and one look"
        )
    else:
        units = paired.detectable_effect(1.0, pairs, level)
        lines.append(
            f"power: {pairs} pairs find a difference of {units:.2f} standard deviations of the paired differences in"
            " four cases of five"
        )
    idle = [size for size in design.planned_looks if size not in design.look_sizes]
    if idle:
        lines.append(
            f"note: the looks after {_listed(idle)} pairs are too early for a winner: they are not made, and cost"
            " nothing"
        )
    if not design.min_effect:
        return [
            *lines,
            "note: without --min-effect nothing is ever called equivalent, and missing seeds are not counted",
        ]
    effect = unit.length(design.min_effect)
    if deviation is not None:
        chance = paired.power(design.min_effect, deviation, pairs, level)
        needed = paired.pairs_needed(design.min_effect, deviation, level)
        more = f"; {needed:,} pairs find it in four cases of five" if needed else ""
        spread = unit.length(deviation)
        lines.append(
            f"power: {effect} is found in {share(chance)} of cases if the differences deviate by {spread}{more}"
        )
    elif paired.smallest_p(pairs) <= level:
        enough = unit.length(design.min_effect / paired.detectable_effect(1.0, pairs, level))
        lines.append(
            f"power: {effect} is found so if the differences deviate by {enough} or less; --deviation takes the figure"
            " of a pilot"
        )
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
