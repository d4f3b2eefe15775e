"""Charts as inline SVG, made of the classes and colour variables of `page.STYLE`, so that they follow light and dark.

Colours are numbers: 0 is the control or the first run, and so on around the palette.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from dovetail_lab.report.numbers import Unit, number

COLORS: Final = 8
WIDTH: Final = 920.0
NARROW: Final = 460.0
"""Of the picture that a narrow screen shows in place of the wide one, so that its text keeps its size."""
DIGIT: Final = 7.0
"""About the width of a character of a tick's label."""

Point = tuple[float, float]
ROUNDING: Final = 1e-9
"""What is relatively as close is drawn as equal: sums in another order differ by more."""
SMALLEST: Final = 1e-300
"""Smaller values are drawn as zero: no step between ticks fits between them."""
LARGEST: Final = 1e300
"""Greater values are left out of a chart as infinities are: the differences of two might be infinite."""


def color(index: int) -> str:
    """Return the palette's colour `index`, as CSS."""
    return f"var(--c{index % COLORS})"


@attrs.frozen(kw_only=True)
class Line:
    """A curve with its interval.

    Attributes:
        label: for the legend and for whoever points at it.
        color: number of its colour.
        points: in order of x.
        low: lower end of the interval at each point; none for no interval.
        high: upper end.
        thin: whether it is one run among several, and drawn in the background.
    """

    label: str
    color: int
    points: Sequence[Point]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    thin: bool = False


@attrs.frozen(kw_only=True)
class Frame:
    """The rectangle into which data are drawn."""

    x_range: Point
    y_range: Point
    width: float = WIDTH
    height: float = 300.0
    left: float = 64.0
    right: float = 16.0
    top: float = 12.0
    bottom: float = 40.0

    def x(self, value: float) -> float:
        """Place a value on the horizontal axis."""
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Place a value on the vertical axis."""
        low, high = self.y_range
        return self.height - self.bottom - (value - low) / (high - low) * (self.height - self.top - self.bottom)

    def path(self, points: Iterable[Point]) -> str:
        """Return points as the data of a path."""
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)

    def rows(self, unit: Unit) -> str:
        """Draw horizontal grid lines with their values."""
        drawn, marked = [], ticks(*self.y_range)
        for tick, written in zip(marked, unit.axis(marked), strict=True):
            y = self.y(tick)
            drawn.append(f'<path class="grid" d="M{self.left:.0f} {y:.1f}H{self.width - self.right:.0f}"/>')
            drawn.append(f'<text x="{self.left - 8:.0f}" y="{y + 4:.1f}" class="end">{_text(written)}</text>')
        return "".join(drawn)

    def columns(self, label: str, unit: Unit, *, grid: bool = False, whole: bool = False) -> str:
        """Draw the values of the horizontal axis, `whole` for counts, and what it means."""
        y, drawn = self.height - self.bottom, []
        marked = ticks(*self.x_range, wanted=8 if self.width > 500 else 4, whole=whole)
        for tick, written in zip(marked, unit.axis(marked), strict=True):
            if grid:
                drawn.append(f'<path class="grid" d="M{self.x(tick):.1f} {self.top:.0f}V{y:.0f}"/>')
            drawn.append(f'<text x="{self.x(tick):.1f}" y="{y + 16:.0f}" class="mid">{_text(written)}</text>')
        middle = (self.left + self.width - self.right) / 2
        drawn.append(f'<text x="{middle:.0f}" y="{self.height - 4:.0f}" class="mid">{_text(label)}</text>')
        return "".join(drawn)

    def svg(self, content: str, label: str) -> str:
        """Return the chart; `label` is for those who do not see it."""
        return (
            f'<svg class="chart" viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img"'
            f' aria-label="{_text(label)}">{content}</svg>'
        )


def both(draw: Callable[[float], str]) -> str:
    """Draw a chart twice, for wide and for narrow screens, which show one of the two (`picture.CHART`)."""
    drawn = []
    for kind, width in (("wide", WIDTH), ("narrow", NARROW)):
        drawn.append(draw(width).replace('class="chart"', f'class="chart {kind}"', 1))
    return "".join(drawn)


def margin(labels: Iterable[str], least: float) -> float:
    """Return the room that labels of an axis take, so that none is cut off.

    >>> margin(["0.1", "0.000025"], 64.0), margin(["1,000,000.5"], 64.0)
    (72.0, 93.0)
    """
    return max(least, 16 + DIGIT * max(map(len, labels), default=0))


def ticks(low: float, high: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Return round values between two ends, about as many as wanted; `whole`: no fractions.

    >>> ticks(0.0, 1.0), ticks(-0.02, 0.05, 4), ticks(0.0, 3.0, 8, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-0.02, 0.0, 0.02, 0.04], [0.0, 1.0, 2.0, 3.0])
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / wanted))
    steps = [power * factor for factor in (1, 2, 2.5, 5, 10, 20)]
    fit = [step for step in steps if span / step <= wanted + 0.5 and (not whole or step % 1 == 0)]
    step = fit[0] if fit else 1.0
    first = math.ceil(low / step - 1e-9)
    return [float(f"{step * index:.12g}") for index in range(first, math.floor(high / step + 1e-9) + 1)]


def spread(values: Iterable[float], *, margin: float = 0.06, zero: bool = False) -> Point:
    """Return the range of finite values with some room, but none below zero where nothing is; `zero`: it is in it.

    Values that differ by rounding alone are taken to be equal.

    >>> spread([1.0, 2.0], margin=0.5), spread([0.0, 2.0, math.inf], margin=0.5), spread([0.0])
    ((0.5, 2.5), (0.0, 3.0), (0.0, 1.0))
    """
    finite = [value for value in values if abs(value) < LARGEST] + ([0.0] if zero else [])
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    size = max(abs(low), abs(high))
    if high - low > max(ROUNDING * size, SMALLEST):
        room = margin * (high - low)
    else:
        room = 0.5 * size if size > SMALLEST else 1.0
    return (low - room if low < 0 else max(low - room, 0.0)), high + room


def lines(
    curves: Sequence[Line],
    *,
    unit: Unit,
    label: str,
    x_label: str = "step",
    band: float | None = None,
    small: bool = False,
    width: float = WIDTH,
) -> str:
    """Draw curves with their intervals over steps.

    Args:
        curves: what to draw, the background first.
        unit: of the values.
        label: what it shows, for those who do not see it.
        x_label: what the horizontal axis is.
        band: half the width of a band around zero, which is then drawn; None for no zero line.
        small: a picture of a third of the page.
        width: of the picture.
    """
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return '<p class="none">nothing recorded</p>'
    values = [y for curve in curves for _, y in curve.points]
    # an interval of two runs may be ten times as wide as all curves together: it is cut, not the curves flattened
    low, high = min(values), max(values)
    reach = 1.5 * (high - low) or 1.0
    values += [end for curve in curves for end in (*curve.low, *curve.high) if low - reach <= end <= high + reach]
    if band is not None:
        values += [-band, band]
    steps = [x for curve in curves for x, _ in curve.points]
    extent = (min(steps), max(steps)) if min(steps) < max(steps) else (min(steps) - 0.5, max(steps) + 0.5)
    extents = spread(values)
    size = {"width": 300.0, "height": 190.0} if small else {"width": width}
    room = margin(unit.axis(ticks(*extents)), 56.0 if small else 64.0)
    last = max(16.0, 4 + DIGIT * len(number(extent[1])) / 2)
    frame = Frame(x_range=extent, y_range=extents, left=room, right=last, **size)
    drawn = [frame.rows(unit), frame.columns(x_label, Unit(), whole=True)]
    if band is not None:
        top, bottom, width = frame.y(band), frame.y(-band), frame.width - frame.left - frame.right
        drawn.append(
            f'<rect class="band" x="{frame.left:.0f}" y="{top:.1f}" width="{width:.0f}" height="{bottom - top:.1f}"/>'
            f'<path class="zero" d="M{frame.left:.0f} {frame.y(0):.1f}H{frame.width - frame.right:.0f}"/>'
        )
    drawn += [_interval(frame, curve) for curve in curves if curve.low]
    drawn += [_curve(frame, curve, unit) for curve in curves]
    return frame.svg("".join(drawn), label)


def _interval(frame: Frame, curve: Line) -> str:
    xs = [x for x, _ in curve.points]
    low, high = frame.y_range

    def within(ends: Sequence[float]) -> list[float]:
        return [min(max(end, low), high) for end in ends]

    outline = [*zip(xs, within(curve.high), strict=True)]
    outline += reversed([*zip(xs, within(curve.low), strict=True)])
    alone = f";stroke:{color(curve.color)};stroke-width:6" if len(xs) == 1 else ""  # there is no area to fill
    return f'<path class="interval" style="fill:{color(curve.color)}{alone}" d="{frame.path(outline)}Z"/>'


def _curve(frame: Frame, curve: Line, unit: Unit) -> str:
    kind = "thin" if curve.thin else "line"
    name = f"<title>{_text(curve.label)}</title>"
    drawn = f'<path class="{kind}" style="stroke:{color(curve.color)}" d="{frame.path(curve.points)}">{name}</path>'
    if (curve.thin and len(curve.points) > 1) or len(curve.points) > 60:
        return drawn
    look = f"fill:{color(curve.color)}{';opacity:.4' * curve.thin}"
    dots = (
        f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3" style="{look}"><title>'
        f"{_text(curve.label)}: {_text(unit.value(y))} at step {number(x)}</title></circle>"
        for x, y in curve.points
    )
    return drawn + "".join(dots)


def _text(text: str) -> str:
    return html.escape(text)
