"""The metrics of a run by step, from the records in its folder."""

from __future__ import annotations

from pathlib import Path

from dovetail.run.files import read_lines

__all__ = ["read_lines", "series"]


def series(folder: Path, metric: str, phase: str = "rl") -> list[tuple[int, float]]:
    """Return the (step, value) pairs of a metric."""
    lines = read_lines(folder / "metrics.jsonl", phase)
    return [(line["step"], line[metric]) for line in lines if metric in line]
