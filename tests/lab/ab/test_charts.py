"""The contents of charts of differences, read from the SVG."""

import math
import re

import pytest
from tests.lab.report.test_charts import parts

from dovetail_lab.ab.charts import Estimate, changes, forest, slopes
from dovetail_lab.report.numbers import Unit

PLAIN, SHARE = Unit(), Unit(percent=True)


def test_a_forest_plot_has_its_band_and_a_row_for_each_estimate():
    rows = [
        Estimate(label=name, value=0.1, low=-0.1, high=end, text="", color=1)
        for name, end in (("a", 0.3), ("b", math.inf))
    ]
    svg = forest(rows, unit=SHARE.of_differences, band=0.02, label="", x_label="difference")
    assert len(parts(svg, "path", "bar")) == 2
    (band,) = parts(svg, "rect", "band")
    assert float(band.get("width", 0)) > 0
    assert "inf" not in svg
    assert "nan" not in svg


def test_slopes_that_get_worse_are_red():
    svg = slopes(
        [("0", 0.1, 0.2), ("1", 0.3, 0.2), ("2", 0.1, 0.1)], ("ppo", "gspo"), unit=SHARE, up=True, index=2, label=""
    )
    styles = re.findall(r'<g style="stroke:(.*?);', svg)
    assert styles == ["var(--c2)", "var(--red)", "var(--muted)"]
    turned = slopes([("0", 0.1, 0.2)], ("ppo", "gspo"), unit=SHARE, up=False, index=2, label="")
    assert "var(--red)" in turned


def test_changes_are_sorted_and_those_of_nothing_are_not_drawn():
    svg = changes([0.0, -0.5, 1.0, 0.25], unit=PLAIN, color_of_gains=1, label="", x_label="prompts")
    bars = parts(svg, "rect")
    assert [bar.get("style") for bar in bars] == ["fill:var(--c1)", "fill:var(--c1)", "fill:var(--red)"]
    assert float(bars[0].get("height", 0)) == pytest.approx(4 * float(bars[1].get("height", 0)), rel=0.01)
