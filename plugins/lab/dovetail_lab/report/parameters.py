"""What a sweep says about its parameters: the metric against each of them, all of them side by side, which matter."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import attrs
import numpy as np

from dovetail.errors import ConfigError
from dovetail_lab.ab.paired import t_interval
from dovetail_lab.report.charts import DIGIT, Frame, both, color, margin, spread, ticks
from dovetail_lab.report.numbers import Unit, number, share
from dovetail_lab.report.page import figure, paragraph, section
from dovetail_lab.sweep.importance import importance
from dovetail_lab.sweep.tables import Setting, names_of

LOGARITHMIC: Final = 20.0
"""From this ratio of the greatest to the least value on, a scale is logarithmic."""
MANY: Final = 12
"""Values of a parameter from which on each is a dot of its own, and there is no line of means."""
LONGEST: Final = 14
"""Characters of a label at an axis."""


@attrs.frozen
class Scale:
    """Where the values of a parameter are on an axis: numbers by size, all else by place."""

    values: tuple[Any, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Scale:
        """Return the scale of the values that occur."""
        distinct = list(dict.fromkeys(map(_plain, values)))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in distinct)
        return cls(tuple(sorted(distinct) if numbers else distinct))

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def is_log(self) -> bool:
        """Whether it is logarithmic.

        >>> Scale.of([1e-5, 1e-3]).is_log, Scale.of([0, 1]).is_log, Scale.of(["ppo", "gspo"]).is_log
        (True, False, False)
        """
        return self.is_numeric and self.values[0] > 0 and self.values[-1] / self.values[0] >= LOGARITHMIC

    def at(self, value: Any) -> float:
        """Place a value."""
        if not self.is_numeric:
            return float(self.values.index(_plain(value)))
        return math.log10(value) if self.is_log else float(value)

    def marks(self, wanted: int) -> list[tuple[float, str]]:
        """Return places with what stands there: the values themselves if they are few, else round numbers."""
        if not self.is_numeric or len(self.values) <= wanted:
            return [(self.at(value), _short(value)) for value in self.values]
        low, high = self.at(self.values[0]), self.at(self.values[-1])
        if self.is_log:
            exponents = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
            if len(exponents) > 1:
                return [(float(exponent), number(10.0**exponent)) for exponent in exponents]
            return [(self.at(value), number(value)) for value in (self.values[0], self.values[-1])]
        return [(tick, number(tick)) for tick in ticks(low, high, wanted)]

    @property
    def extent(self) -> tuple[float, float]:
        """The ends of the axis, with some room."""
        places = [self.at(value) for value in self.values]
        room = 0.06 * (max(places) - min(places)) or 0.5
        return min(places) - room, max(places) + room


def _plain(value: Any) -> Any:
    """A value that can be compared and looked up."""
    return value if isinstance(value, int | float | str) else repr(value)


def _short(value: Any) -> str:
    text = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def varied(rows: Sequence[Setting]) -> dict[str, Scale]:
    """Return the parameters of which there is more than one value, with their scales."""
    settings = [row.trials[0].settings for row in rows]
    keys = dict.fromkeys(key for each in settings for key in each)
    found = {key: Scale.of([each[key] for each in settings if key in each]) for key in keys}
    return {key: scale for key, scale in found.items() if len(scale.values) > 1}


def parameters(rows: Sequence[Setting], metric: str, goal: str, unit: Unit) -> str:
    """Return the part of the page about parameters; nothing where no setting has a value."""
    known = [row for row in rows if row.mean is not None]
    scales = varied(known)
    if len(known) < 2 or not scales:
        return ""
    names = names_of(row.trials[0] for row in rows)
    small = "".join(
        figure(_against(known, key, names[key], scale, metric, unit), title=names[key], in_full=key)
        for key, scale in scales.items()
    )
    caption = (
        "A dot is a setting, its bar the lowest and the highest of its seeds. The line is the mean of all runs at a"
        " value, its band the 95 % t interval over seeds, where there are two or more at every value."
    )
    alone = f'<div class="grid3">{small}</div><p class="muted">{caption.replace(" %", "&nbsp;%")}</p>'
    return section(f"{metric} against each parameter", alone) + _together(known, scales, metric, goal, unit)


def _against(rows: Sequence[Setting], key: str, short: str, scale: Scale, metric: str, unit: Unit) -> str:
    rows = [row for row in rows if key in row.trials[0].settings]
    values = [value for row in rows for value in row.last]
    line, band = _means(rows, key, scale)
    y_range = spread([*values])
    room = margin(unit.axis(ticks(*y_range)), 56.0)
    frame = Frame(x_range=scale.extent, y_range=y_range, width=300.0, height=200.0, left=room, right=14.0)
    drawn = [frame.rows(unit)]
    marks = scale.marks(4)
    for place, text in _fitting(marks, frame):
        drawn.append(f'<text x="{frame.x(place):.1f}" y="{frame.height - 24:.0f}" class="mid">{_escape(text)}</text>')
    name = short + (" (log)" if scale.is_log else "")
    drawn.append(f'<text x="{(room + 286) / 2:.0f}" y="{frame.height - 6:.0f}" class="mid">{_escape(name)}</text>')
    if band:
        low, high = y_range
        ends = [(x, min(max(y, low), high)) for x, y in band]
        drawn.append(f'<path class="interval" style="fill:{color(1)}" d="{frame.path(ends)}Z"/>')
    if line:
        drawn.append(f'<path class="line" style="stroke:{color(1)}" d="{frame.path(line)}"/>')
    for row in rows:
        assert row.mean is not None, "those without are left out"
        x = frame.x(scale.at(row.trials[0].settings[key]))
        title = f"{row.in_full}: {unit.value(row.mean)}, {row.seeds} seeds"
        drawn.append(
            f'<g style="stroke:{color(1)};fill:{color(1)}"><path d="M{x:.1f} {frame.y(min(row.last)):.1f}'
            f'V{frame.y(max(row.last)):.1f}"/><circle cx="{x:.1f}" cy="{frame.y(row.mean):.1f}" r="3">'
            f"<title>{_escape(title)}</title></circle></g>"
        )
    return frame.svg("".join(drawn), f"{metric} against {key}")


def _means(
    rows: Sequence[Setting], key: str, scale: Scale
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The mean at each value and the outline of its interval over seeds; nothing where values are many."""
    if len(scale.values) > MANY or not scale.is_numeric:
        return [], []
    line, outline = [], []
    for value in scale.values:
        by_seed: dict[int, list[float]] = {}
        for row in rows:
            if _plain(row.trials[0].settings[key]) == value:
                for seed, last in row.by_seed.items():
                    by_seed.setdefault(seed, []).append(last)
        means = [fmean(each) for each in by_seed.values()]
        interval = t_interval(np.array(means))
        line.append((scale.at(value), fmean(means)))
        outline.append((scale.at(value), interval.low, interval.high))
    if not all(math.isfinite(low + high) for _, low, high in outline):
        return line, []
    return line, [*((x, high) for x, _, high in outline), *((x, low) for x, low, _ in reversed(outline))]


def _fitting(marks: Sequence[tuple[float, str]], frame: Frame) -> list[tuple[float, str]]:
    """The labels of an axis that neither cover each other nor leave the picture."""
    shown, end = [], 0.0
    for place, text in marks:
        half = DIGIT * len(text) / 2
        if frame.x(place) - half >= end and frame.x(place) + half <= frame.width:
            shown.append((place, text))
            end = frame.x(place) + half + 4
    return shown


def _together(rows: Sequence[Setting], scales: Mapping[str, Scale], metric: str, goal: str, unit: Unit) -> str:
    if len(scales) < 2:
        return ""
    chart = both(lambda width: _parallel(rows, scales, metric, goal, unit, width))
    caption = (
        "A line is a setting; the best quarter is in colour. At 'none' are settings that do not have the parameter. An"
        " axis is logarithmic where it says so."
    )
    return section("All parameters together", figure(chart, caption))


def _parallel(
    rows: Sequence[Setting], scales: Mapping[str, Scale], metric: str, goal: str, unit: Unit, width: float
) -> str:
    """Parallel coordinates: an axis for each parameter, the metric at the right."""
    means = [row.mean for row in rows if row.mean is not None]
    low, high = spread(means)
    frame = Frame(
        x_range=(0, len(scales)), y_range=(0, 1), width=width, height=300, left=60, right=70, top=34, bottom=12
    )
    names = names_of(row.trials[0] for row in rows)
    axes, drawn = [], []
    for place, (key, scale) in enumerate(scales.items()):
        first, last = scale.extent
        marks = [(0.0, "none")] if any(key not in row.trials[0].settings for row in rows) else []
        marks += [((at - first) / (last - first), text) for at, text in scale.marks(6)]
        log = " (log)" if scale.is_log else ""
        axes.append(_axis(frame, place, names[key] + log, marks, in_full=key + log))
    marked = ticks(low, high)
    marks = [((tick - low) / (high - low), text) for tick, text in zip(marked, unit.axis(marked), strict=True)]
    axes.append(_axis(frame, len(scales), metric, marks, in_full=metric))
    ordered = sorted(rows, key=lambda row: row.mean or 0.0, reverse=goal == "min")
    # as written, so that of equal settings all are in colour or none
    quarter = ordered[-max(1, len(ordered) // 4) :]
    best = {unit.value(row.mean) for row in quarter if row.mean is not None}
    for row in ordered:
        assert row.mean is not None, "those without are left out"
        points = []
        for place, (key, scale) in enumerate(scales.items()):
            (first, last), settings = scale.extent, row.trials[0].settings
            points.append((place, (scale.at(settings[key]) - first) / (last - first) if key in settings else 0.0))
        points.append((len(scales), (row.mean - low) / (high - low)))
        good = unit.value(row.mean) in best
        style = f"stroke:{color(1 if good else 0)}" + ("" if good else ";opacity:.35")
        title = f"{row.in_full}: {unit.value(row.mean)}"
        drawn.append(
            f'<path class="path" style="{style}" d="{frame.path(points)}"><title>{_escape(title)}</title></path>'
        )
    return frame.svg("".join([*drawn, *axes]), f"all parameters and {metric}, a line for each setting")


def _axis(frame: Frame, place: int, name: str, marks: Sequence[tuple[float, str]], *, in_full: str) -> str:
    x, is_last = frame.x(place), place == frame.x_range[1]
    room = (frame.width - frame.left - frame.right) / max(frame.x_range[1], 1)
    longest = int(room / DIGIT) if place else 16
    shown = name if len(name) <= longest else f"{name[: longest - 1]}…"
    drawn = [
        f'<path class="axis" d="M{x:.1f} {frame.top:.0f}V{frame.height - frame.bottom:.0f}"/>',
        f'<text x="{x:.1f}" y="{frame.top - 14:.0f}" class="mid strong">{_escape(shown)}'
        f"<title>{_escape(in_full)}</title></text>",
    ]
    for at, text in marks:
        side = f'x="{x + 6:.1f}" class="over"' if is_last else f'x="{x - 6:.1f}" class="end over"'
        drawn.append(f'<text {side} y="{frame.y(at) + 4:.1f}">{_escape(text)}</text>')
    return "".join(drawn)


def importances(rows: Sequence[Setting], goal: str) -> str:
    """Return the part about which parameters matter."""
    try:
        found = importance(rows, goal)
    except ConfigError as error:
        return section("Importance", paragraph(str(error), "muted"))
    names = names_of(row.trials[0] for row in rows)
    bars = "".join(
        f'<div class="bar"><span title="{html.escape(key)}">{html.escape(names[key])}</span>'
        f'<i style="width:{100 * value:.1f}%"></i>'
        f"<b>{share(value)}</b></div>".replace(" %", "&nbsp;%")
        for key, value in found.items()
    )
    note = (
        "How much each parameter tells the best tenth of the settings from all others (PED-ANOVA, Watanabe et al."
        " 2023), as shares of one. It says nothing about which value is good, and little where few settings were tried."
    )
    return section("Importance", f'<div class="bars">{bars}</div>', paragraph(note, "muted"))


def _escape(text: str) -> str:
    return html.escape(text)
