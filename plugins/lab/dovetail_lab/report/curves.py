"""Curves for charts: fewer points, so that a page stays small and a trend is seen; means over runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import attrs
import numpy as np

from dovetail_lab.ab.paired import t_interval

POINTS: Final = 100


@attrs.frozen(kw_only=True)
class Curves:
    """Mean over runs at each step, with its 95 % t interval; the interval is infinite for a single run."""

    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def smoothed(curve: Mapping[int, float], points: int = POINTS) -> dict[int, float]:
    """Return the means of a curve's values over consecutive steps, at the last step of each.

    Curves with the same steps keep the same steps. What is short stays as it is; values that are not numbers are left
    out.

    >>> smoothed({1: 0.0, 2: 1.0, 3: 4.0, 4: 2.0}, points=2)
    {2: 0.5, 4: 3.0}
    """
    steps = sorted(curve)
    width = math.ceil(len(steps) / points)
    parts = [steps[start : start + width] for start in range(0, len(steps), width)] if steps else []
    values = {part[-1]: [curve[step] for step in part if math.isfinite(curve[step])] for part in parts}
    return {step: fmean(found) for step, found in values.items() if found}


def mean_curves(curves: Sequence[Mapping[int, float]]) -> Curves:
    """Return the mean of curves at the steps that all of them have."""
    common = set.intersection(*(set(curve) for curve in curves)) if curves else set()
    steps = sorted(common)
    values = np.array([[curve[step] for step in steps] for curve in curves], float)
    intervals = [t_interval(values[:, index]) for index in range(len(steps))]
    return Curves(
        steps=tuple(steps),
        mean=tuple(float(column.mean()) for column in values.T) if steps else (),
        low=tuple(interval.low for interval in intervals),
        high=tuple(interval.high for interval in intervals),
    )
