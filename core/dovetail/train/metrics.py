"""Metrics and timings of a step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dovetail.train.parts import Sums
from dovetail.train.sampling import Sampled


def rollout_metrics(sampled: Sampled) -> dict[str, float]:
    """Return rewards, lengths and truncation of a step's completions."""
    scores, lengths = sampled.scores, sampled.completions.mask.sum(axis=1)
    unscored = np.isnan(scores.total)
    metrics = {
        "reward/mean": float(np.nanmean(scores.total)) if not unscored.all() else 0.0,
        "reward/std": float(np.nanstd(scores.total)) if not unscored.all() else 0.0,
        "completion/length_mean": float(lengths.mean()),
        "completion/length_max": float(lengths.max()),
        "completion/truncated": float(sampled.completions.truncated.mean()),
    }
    if unscored.any():
        metrics["reward/unscored"] = float(unscored.mean())
    for index, name in enumerate(scores.names):
        given = scores.table[:, index][~np.isnan(scores.table[:, index])]
        if len(given):
            metrics[f"reward/{name}"] = float(given.mean())
    return metrics


def means(sums: Sums) -> dict[str, float]:
    """Fetch metric sums, in one transfer, as means; a metric that counted nothing is left out."""
    host = jax.device_get(sums)
    return {name: float(total / count) for name, (total, count) in sorted(host.items()) if count > 0}


def add(sums: Mapping[str, Any], more: Mapping[str, Any]) -> Sums:
    """Add up metric sums; a metric that only one side has is kept."""
    both = dict(sums)
    for name, (total, count) in more.items():
        before = both.get(name, (0.0, 0.0))
        both[name] = (before[0] + total, before[1] + count)
    return both


class Clock:
    """Wall-clock seconds between marks of one step."""

    def __init__(self) -> None:
        """Start the clock."""
        self._began = self._last = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """Count the time since the last mark under a name."""
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now

    def timings(self, tokens: int) -> dict[str, float]:
        """Return `time/*`; completion tokens per second of the whole step where tokens were made."""
        step = time.perf_counter() - self._began
        found = {f"time/{name}": seconds for name, seconds in self._seconds.items()} | {"time/step": step}
        return found | ({"time/tokens_per_second": tokens / step} if tokens else {})
