"""The contents of charts, read from the SVG."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from dovetail_lab.report.charts import Line, lines, spread, ticks
from dovetail_lab.report.numbers import Unit

PLAIN, SHARE = Unit(), Unit(percent=True)


def parts(svg: str, tag: str, kind: str | None = None) -> list[ET.Element]:
    return [each for each in ET.fromstring(svg).iter(tag) if kind is None or each.get("class") == kind]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3e-16, 2e-16), (0, 1e9), (0.4999, 0.5001), (-7, 700)])
def test_ticks_are_a_few_round_numbers_within(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert all(low - 1e-9 * (high - low) <= tick <= high * (1 + 1e-9) for tick in found)
    gaps = {f"{b - a:.6g}" for a, b in itertools.pairwise(found)}
    assert len(gaps) == 1


@pytest.mark.parametrize("unit", [PLAIN, SHARE, Unit(bytes=True)])
@pytest.mark.parametrize(("low", "high"), [(12034.1, 12034.4), (15.21 * 2**30, 15.24 * 2**30), (0.12341, 0.12349)])
def test_ticks_are_told_apart(low, high, unit):
    """The mean length of completions, or the memory, may move by less than four digits show."""
    line = Line(label="a", color=1, points=[(0, low), (10, high)])
    labels = [each.text for each in parts(lines([line], unit=unit, label="l"), "text", "end")]
    assert len(labels) > 1
    assert len(set(labels)) == len(labels)


def test_a_loss_that_explodes_is_drawn():
    """Its labels once were wider than the picture."""
    line = Line(label="a", color=1, points=[(0, 1e25), (10, 9e25)])
    svg = lines([line], unit=PLAIN, label="l", small=True)
    assert "8e+25" in [each.text for each in parts(svg, "text", "end")]
    (curve,) = parts(svg, "path", "line")
    first, last = (float(each.split()[0]) for each in (curve.get("d") or "").removeprefix("M").split("L"))
    assert last - first > 150


@pytest.mark.parametrize("values", [(1.0, 1.0 + 4e-16), (0.0, 1e-323), (3e7, 3e7 + 1e-8)])
def test_rounding_is_drawn_as_a_flat_line(values):
    svg = lines([Line(label="a", color=1, points=list(enumerate(values)))], unit=PLAIN, label="l")
    (curve,) = parts(svg, "path", "line")
    first, last = (float(each.split()[1]) for each in (curve.get("d") or "").removeprefix("M").split("L"))
    assert first == last


def test_an_infinity_has_a_sign_in_every_unit():
    units = (PLAIN, SHARE, Unit(bytes=True))
    assert [unit.value(float("-inf")) for unit in units] == ["−∞"] * 3


def test_steps_are_whole():
    assert all(tick % 1 == 0 for high in range(1, 60) for tick in ticks(0, high, 8, whole=True))


def test_a_range_of_shares_does_not_go_below_zero():
    assert spread([0.0, 0.5])[0] == 0.0
    assert spread([-0.1, 0.5])[0] < -0.1
    assert spread([]) == (0.0, 1.0)


def test_curves_go_where_the_data_are():
    line = Line(label="a < b", color=1, points=[(0, 0.0), (10, 1.0)], low=(-0.1, 0.9), high=(0.1, 1.1))
    svg = lines([line], unit=SHARE, label="accuracy")
    (curve,) = parts(svg, "path", "line")
    (x0, y0), (x1, y1) = [tuple(map(float, pair.split())) for pair in curve.get("d", "")[1:].split("L")]
    assert x0 < x1
    assert y0 > y1, "up is higher"
    assert parts(svg, "path", "interval")
    assert "a &lt; b" in svg
    assert any(each.text == "100 %" for each in parts(svg, "text"))


def test_an_interval_without_end_does_not_flatten_the_curves():
    wide = Line(label="a", color=0, points=[(0, 0.0), (1, 1.0)], low=(-500.0, 0.9), high=(500.0, 1.1))
    (curve,) = parts(lines([wide], unit=PLAIN, label=""), "path", "line")
    ys = [float(pair.split()[1]) for pair in curve.get("d", "")[1:].split("L")]
    assert ys[0] - ys[1] > 50


def test_nothing_recorded_and_a_single_point():
    assert "nothing recorded" in lines([], unit=PLAIN, label="")
    assert parts(lines([Line(label="a", color=0, points=[(5, 2.0)])], unit=PLAIN, label=""), "circle")
