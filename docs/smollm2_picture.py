"""The curves of the recipe `smollm2_arithmetic` with three seeds, drawn from the table of `docs/smollm2.md`."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

from dovetail_lab.report.charts import Line, lines
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.picture import picture as drawn

PAGE = Path(__file__).parent / "smollm2.md"
ROW = re.compile(r"^\| (\d+) \|" + r" \**([\d.]+) %\** \|" * 3, re.MULTILINE)
"""A step and the held-out accuracy of each seed, in percent."""
COLOR = 2
"""That of held-out accuracy in other curves."""


def picture() -> str:
    """Return the picture as SVG."""
    rows = {int(step): [float(each) / 100 for each in seeds] for step, *seeds in ROW.findall(PAGE.read_text("utf-8"))}
    seeds = [[(step, found[number]) for step, found in rows.items()] for number in range(3)]
    curves = [Line(label=f"seed {n}", color=COLOR, points=points, thin=True) for n, points in enumerate(seeds)]
    curves.append(Line(label="mean", color=COLOR, points=[(step, fmean(found)) for step, found in rows.items()]))
    first, *_, last = (", ".join(dict.fromkeys(f"{100 * each:.1f}" for each in found)) for found in rows.values())
    heading = f"held-out accuracy on 200 sums up to 30: {first} % to {last} %; thin: seeds 0, 1 and 2, bold: their mean"
    label = "held-out accuracy by step"
    chart = lines(curves, unit=Unit(percent=True), label=label, x_label="step of reinforcement learning")
    return drawn("SmolLM2-135M learns to add", [(heading, chart)])
