"""Charts of differences: estimates with their intervals, pairs of results, and changes of single prompts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Final

import attrs

from dovetail_lab.report.charts import DIGIT, WIDTH, Frame, color, spread
from dovetail_lab.report.numbers import Unit

STRONG: Final = 8.0
"""About the width of a character of a label in strong type."""


@attrs.frozen(kw_only=True)
class Estimate:
    """A row of a forest plot: a difference, its interval, and what to write beside it."""

    label: str
    value: float
    low: float
    high: float
    text: str
    color: int
    light: bool = False


def forest(rows: Sequence[Estimate], *, unit: Unit, band: float, label: str, x_label: str, width: float = WIDTH) -> str:
    """Draw differences with their intervals, one below the other, over the band of differences that do not matter.

    A narrow picture has the words above the intervals instead of beside them.
    """
    values = [end for row in rows for end in (row.value, row.low, row.high)]
    x_range = spread([*values, -band, band], zero=True)
    left = 24 + STRONG * max(len(row.label) for row in rows)
    right = 24 + DIGIT * max(len(row.text) for row in rows)
    wide = width == WIDTH
    pace = 30 if wide else 48
    left, right = (left, right) if wide else (20.0, 20.0)
    frame = Frame(x_range=x_range, y_range=(0, 1), width=width, height=60 + pace * len(rows), left=left, right=right)
    bottom = frame.height - frame.bottom
    drawn = [frame.columns(x_label, unit, grid=True)]
    start, breadth = frame.x(-band), frame.x(band) - frame.x(-band)
    drawn.append(
        f'<rect class="band" x="{start:.1f}" y="{frame.top:.0f}" width="{breadth:.1f}"'
        f' height="{bottom - frame.top:.0f}"/><path class="zero" d="M{frame.x(0):.1f} {frame.top:.0f}V{bottom:.0f}"/>'
    )
    for index, row in enumerate(rows):
        y = frame.top + (18 if wide else 34) + pace * index
        classes = ("end strong", "start") if wide else ("strong over", "end over")
        words = (left - 12, y + 4, frame.width - right + 12, y + 4) if wide else (left, y - 12, width - right, y - 12)
        low, high = (frame.x(min(max(end, x_range[0]), x_range[1])) for end in (row.low, row.high))
        style = f"stroke:{color(row.color)};fill:{color(row.color)}" + (";opacity:.55" if row.light else "")
        drawn.append(
            f'<text x="{words[0]:.0f}" y="{words[1]:.0f}" class="{classes[0]}">{html.escape(row.label)}</text>'
            f'<g style="{style}"><path class="bar" d="M{low:.1f} {y:.0f}H{high:.1f}"/>'
            f'<rect x="{frame.x(row.value) - 5:.1f}" y="{y - 5:.0f}" width="10" height="10"/></g>'
            f'<text x="{words[2]:.0f}" y="{words[3]:.0f}" class="{classes[1]}">{html.escape(row.text)}</text>'
        )
    return frame.svg("".join(drawn), label)


def slopes(
    pairs: Sequence[tuple[str, float, float]], names: tuple[str, str], *, unit: Unit, up: bool, index: int, label: str
) -> str:
    """Draw each seed as a line from the control's result to the arm's; `up`: higher is better.

    Lines that get better have the colour `index`, the others are red.
    """
    values = [value for _, *both in pairs for value in both]
    frame = Frame(x_range=(0, 1), y_range=spread(values), width=300, height=260, left=64, right=56, bottom=32)
    drawn = [frame.rows(unit)]
    for x, name, align in ((0, names[0], "mid"), (1, names[1], "mid")):
        drawn.append(
            f'<path class="zero" d="M{frame.x(x):.1f} {frame.top:.0f}V{frame.height - frame.bottom:.0f}"/>'
            f'<text x="{frame.x(x):.1f}" y="{frame.height - 10:.0f}" class="{align} strong">{html.escape(name)}</text>'
        )
    for (seed, before, after), y in zip(pairs, _apart([frame.y(after) for _, _, after in pairs], 12.0), strict=True):
        gain = after > before if up else after < before
        style = color(index) if gain else "var(--red)" if after != before else "var(--muted)"
        title = f"seed {seed}: {unit.value(before)}, then {unit.value(after)}"
        drawn.append(
            f'<g style="stroke:{style};fill:{style}"><path class="slope" d="{frame.path([(0, before), (1, after)])}">'
            f"<title>{html.escape(title)}</title></path>"
            f'<circle cx="{frame.x(0):.1f}" cy="{frame.y(before):.1f}" r="3.5"/>'
            f'<circle cx="{frame.x(1):.1f}" cy="{frame.y(after):.1f}" r="3.5"/></g>'
            f'<text x="{frame.x(1) + 10:.1f}" y="{y + 4:.1f}">{html.escape(seed)}</text>'
        )
    return frame.svg("".join(drawn), label)


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Move labels down until none covers another.

    >>> _apart([10.0, 11.0, 40.0], 12.0)
    [10.0, 22.0, 40.0]
    """
    moved, last = list(places), -math.inf
    for index in sorted(range(len(places)), key=places.__getitem__):
        last = moved[index] = max(places[index], last + gap)
    return moved


def changes(values: Sequence[float], *, unit: Unit, color_of_gains: int, label: str, x_label: str) -> str:
    """Draw sorted changes as bars from zero: what gains in a colour, what loses in red."""
    ordered = sorted(values, reverse=True)
    top = max(abs(value) for value in ordered) or 1.0
    frame = Frame(x_range=(0, len(ordered)), y_range=(-1.06 * top, 1.06 * top), width=600, height=260)
    width = max((frame.x(1) - frame.x(0)) * 0.9, 0.4)
    drawn = [frame.rows(unit), frame.columns(x_label, Unit(), whole=True)]
    for place, value in enumerate(ordered):
        if value:
            y, zero = frame.y(value), frame.y(0)
            style = color(color_of_gains) if value > 0 else "var(--red)"
            drawn.append(
                f'<rect x="{frame.x(place):.1f}" y="{min(y, zero):.1f}" width="{width:.2f}"'
                f' height="{abs(y - zero):.1f}" style="fill:{style}"/>'
            )
    drawn.append(f'<path class="zero" d="M{frame.left:.0f} {frame.y(0):.1f}H{frame.width - frame.right:.0f}"/>')
    return frame.svg("".join(drawn), label)
