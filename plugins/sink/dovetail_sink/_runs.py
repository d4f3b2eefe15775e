"""The curves of a run, read from its `metrics.jsonl`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import attrs

from dovetail.run.files import records
from dovetail_sink._figures import ACCURACY, REWARD

METRICS: Final = "metrics.jsonl"

Series = dict[int, float]
"""A number by step."""


@attrs.frozen
class Points:
    """Mean reward and held-out accuracy by step, and the steps of the warm start."""

    reward: Series
    accuracy: Series
    sft_steps: int


def read(folder: Path) -> Points:
    """Read a run's metrics; a folder without a file has no points. Values that are null or not finite are left out.

    Raises:
        RunError: at a line that is not a record, but for the last one, which a killed run may leave unfinished.
    """
    reward: Series = {}
    accuracy: Series = {}
    sft_steps = 0
    for record in records(folder / METRICS):
        step = record["step"]
        if record["phase"] == "sft":
            sft_steps = max(sft_steps, step)
        for name, series in ((REWARD, reward), (ACCURACY, accuracy)):
            value = record.get(name)
            if value is not None and math.isfinite(value):
                series[step] = value
    return Points(reward, accuracy, sft_steps)


def running_mean(series: Series, window: int) -> Series:
    """Return the mean over `window` (odd) neighbouring points, fewer at the ends.

    >>> running_mean({1: 0.0, 2: 3.0, 3: 6.0}, window=3)
    {1: 1.5, 2: 3.0, 3: 4.5}
    """
    steps, values = list(series), list(series.values())
    half = window // 2
    around = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return {step: sum(near) / len(near) for step, near in zip(steps, around, strict=True)}


def mean_of(runs: list[Series]) -> Series:
    """Return the mean over runs at the steps that all of them have.

    >>> mean_of([{1: 0.0, 2: 1.0}, {2: 3.0}])
    {2: 2.0}
    """
    common = [step for step in runs[0] if all(step in run for run in runs)]
    return {step: sum(run[step] for run in runs) / len(runs) for step in common}
