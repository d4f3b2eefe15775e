"""What ran when in a step: a lane for each program, and the share of the time in which it had nothing to do."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import RunError
from dovetail.run.files import records
from dovetail.spans import TRAINER, Span
from dovetail_lab.recorded import LARGEST as LARGEST_STEP
from dovetail_lab.recorded import LATEST
from dovetail_lab.report.charts import DIGIT, WIDTH, Frame, both, color
from dovetail_lab.report.numbers import Unit, number, share
from dovetail_lab.report.page import escape, figure, legend, paragraph, section

FILE: Final = "spans.jsonl"
SAMPLER: Final = "sampler"
IDLE: Final = "channel"
"""The span in which a program waits for the other one."""

EVALUATION: Final = "eval"

KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "rollout": ("sampling", 1),
    "sampling": ("sampling", 1),
    "greedy": ("greedy sampling", 1),
    "reward": ("rewards", 2),
    "tools": ("tools and environments", 2),
    "scoring": ("scoring", 3),
    "update": ("update", 4),
    EVALUATION: ("evaluation", 5),
    "sync": ("new weights", 6),
    "loading": ("new weights", 6),
    "checkpoint": ("checkpoint", 7),
    "waiting": ("next prompts", 0),
}
"""What a span is called, and the number of its colour."""

SAMPLERS: Final = ("waiting", "rollout", "greedy", "reward", EVALUATION)
"""Spans that are the sampler's, even if both programs take turns in one thread."""

LANE: Final = 26.0
LEAST: Final = 0.7
"""Width of the narrowest bar, in pixels."""


@attrs.frozen(kw_only=True)
class Step:
    """What ran between the beginning and the end of a step of the trainer's program, by lane."""

    number: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took, with the evaluation and the checkpoint after it."""
        return self.ended - self.began


@attrs.frozen(kw_only=True)
class Timeline:
    """The spans of a run by lane, in the order of their beginnings, and the steps of its trainer."""

    lanes: Mapping[str, Sequence[Span]]
    steps: Sequence[Step]

    @classmethod
    def read(cls, file: Path) -> Timeline:
        """Read the spans of a run.

        Raises:
            RunError: at a line that is something else, with its number.
        """
        lanes: dict[str, list[Span]] = {}
        ends: dict[int, tuple[float, float]] = {}
        for place, line in enumerate(records(file), 1):
            for given in _listed(line, f"{file}:{place}"):
                span = _checked(given, f"{file}:{place}")
                lane = SAMPLER if span.program == TRAINER and span.name in SAMPLERS else span.program
                lanes.setdefault(lane, []).append(span)
                if span.program == TRAINER and span.step is not None:
                    began, ended = ends.get(span.step, (math.inf, -math.inf))
                    ends[span.step] = (min(began, span.began), max(ended, span.ended))
        steps = [Step(number=n, began=b, ended=e) for n, (b, e) in sorted(ends.items()) if n and e > b]
        order = sorted(lanes, key=lambda lane: (lane != SAMPLER, lane != TRAINER, len(lane), lane))
        return cls(lanes={lane: sorted(lanes[lane], key=lambda span: span.began) for lane in order}, steps=steps)

    @property
    def shown(self) -> list[tuple[str, Step]]:
        """The steps that tell most, each with the reason: the first, the typical one, the slowest after the first."""
        if not self.steps:
            return []
        first, *later = self.steps
        by_time = sorted(later, key=lambda step: step.seconds)
        found = [("the first, in which programs are compiled", first)]
        if later:
            found.append(("the median of those after it", by_time[(len(by_time) - 1) // 2]))
        if len(later) > 1:
            found.append(("the slowest of those after it", by_time[-1]))
        return found

    def during(self, lane: str, step: Step) -> list[Span]:
        """Return the spans of a lane in a step, cut to it; a lane's spans do not overlap unless a plugin made them."""
        spans = self.lanes[lane]
        first = max(0, bisect_left(spans, step.began, key=lambda span: span.began) - 1)
        last = bisect_left(spans, step.ended, key=lambda span: span.began)
        cut = [
            span._replace(began=max(span.began, step.began), ended=min(span.ended, step.ended))
            for span in spans[first:last]
        ]
        return [span for span in cut if span.ended > span.began]

    def idle(self, lane: str, steps: Sequence[Step]) -> float:
        """Return the share of the steps' time in which a lane did nothing or waited for the other program."""
        busy = sum(span.ended - span.began for step in steps for span in self.during(lane, step) if span.name != IDLE)
        return max(0.0, 1 - busy / sum(step.seconds for step in steps))


def _listed(line: Mapping[str, Any], place: str) -> list[Any]:
    found = line.get("spans")
    if not isinstance(found, list):
        raise RunError(f"{place}: 'spans' is {found!r}, not a list; restore the file, or move it away")
    return found


def _checked(given: Any, place: str) -> Span:
    match given:
        case [str(program), int() | None as step, str(name), int() | float() as began, int() | float() as ended] if (
            0 <= began <= ended <= LATEST and 0 <= (step or 0) < LARGEST_STEP
        ):
            return Span(program, step, name, began, ended)
    raise RunError(
        f"{place}: {given!r} is not a span [program, step, name, beginning, end]; restore the file, or move it away"
    )


def timelines(runs: Sequence[tuple[str, Path]]) -> str:
    """Return the part of the page for runs, by name and folder: some steps of one run, or a typical step of each."""
    read = [(name, Timeline.read(folder / FILE)) for name, folder in runs]
    parts, used = [], dict[str, int]()
    for name, timeline in read:
        shown = timeline.shown
        for why, step in shown if len(read) == 1 else shown[1:2]:
            title = f"Step {step.number}, {why}" if len(read) == 1 else f"{name}, step {step.number}"
            label = f"what ran when in step {step.number}"
            chart = both(lambda width, t=timeline, s=step, lb=label: _chart(t, s, lb, width))
            parts.append(figure(chart, _idle(timeline, [step]), title=title))
            used |= dict(_kind(span) for lane in timeline.lanes for span in timeline.during(lane, step))
        if len(timeline.steps) > 1:
            head = f"{name}, all" if len(read) > 1 else "All"
            parts.append(paragraph(f"{head} steps after the first. {_idle(timeline, timeline.steps[1:])}", "muted"))
    for name in (IDLE, "compiling", KINDS["tools"][0]):  # a lane of its own says what the last two are
        used.pop(name, None)
    return section("Time line", legend(list(used.items())) if used else "", *parts)


def _idle(timeline: Timeline, steps: Sequence[Step]) -> str:
    sides = [lane for lane in (SAMPLER, TRAINER) if lane in timeline.lanes]
    return f"Idle: {', '.join(f'{lane} {share(timeline.idle(lane, steps))}' for lane in sides)}."


def _kind(span: Span) -> tuple[str, int]:
    return KINDS.get(span.name, (span.name, 0))


def _chart(timeline: Timeline, step: Step, label: str, width: float) -> str:
    """Draw a step: seconds since its beginning to the right, lanes one below the other."""
    drawn_lanes = [(lane, spans) for lane in timeline.lanes if (spans := timeline.during(lane, step))]
    left = 24 + DIGIT * max(len(lane) for lane, _ in drawn_lanes)
    frame = Frame(
        x_range=(0.0, step.seconds),
        y_range=(0, 1),
        width=width,
        height=60 + LANE * len(drawn_lanes),
        left=left if width == WIDTH else min(left, 90.0),
    )
    drawn = [frame.columns("seconds since its beginning", Unit(), grid=True)]
    for row, (lane, spans) in enumerate(drawn_lanes):
        top = frame.top + 4 + LANE * row
        drawn.append(f'<text x="{frame.left - 8:.0f}" y="{top + 14:.0f}" class="end">{escape(lane)}</text>')
        breadth = frame.width - frame.left - frame.right
        drawn.append(f'<rect class="lane" x="{frame.left:.0f}" y="{top:.0f}" width="{breadth:.0f}" height="20"/>')
        drawn += [_bar(frame, top, span, step) for span in spans if span.name != IDLE]
    return frame.svg("".join(drawn), label)


def _bar(frame: Frame, top: float, span: Span, step: Step) -> str:
    name, index = _kind(span)
    start, end = frame.x(span.began - step.began), frame.x(span.ended - step.began)
    of = (
        "" if span.step in (None, step.number) else f" {'after' if span.name == EVALUATION else 'for'} step {span.step}"
    )
    said = f"{name}{of}: {number(span.ended - span.began)} s"
    bar = (
        f'<rect x="{start:.1f}" y="{top:.0f}" width="{max(end - start, LEAST):.1f}" height="20"'
        f' style="fill:{color(index)}"><title>{escape(said)}</title></rect>'
    )
    words = next((text for text in (name + of, name) if DIGIT * len(text) + 8 < end - start), "")
    text = f'<text x="{(start + end) / 2:.1f}" y="{top + 14:.0f}" class="mid in">{escape(words)}</text>'
    return bar + (text if words else "")
