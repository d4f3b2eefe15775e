"""The metrics that sinks show, and their formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs


@attrs.frozen
class Figure:
    """A heading, its metric, and the format in the live table."""

    heading: str
    metric: str
    format: str


LOSS: Final = "sft/loss"
REWARD: Final = "reward/mean"
ACCURACY: Final = "eval/accuracy"

FIGURES: Final = (
    Figure("loss", LOSS, ".4f"),
    Figure("reward", REWARD, ".3f"),
    Figure("accuracy", ACCURACY, ".1%"),
    Figure("KL", "kl/mean", ".4f"),
    Figure("entropy", "entropy/mean", ".3f"),
    Figure("clip", "policy_loss/clip_fraction", ".1%"),
    Figure("length", "completion/length_mean", ".1f"),
    Figure("trunc", "completion/truncated", ".1%"),
    Figure("fill", "lengths/fill", ".0%"),
    Figure("stale", "staleness/mean", ".1f"),
    Figure("idle", "idle/trainer", ".0%"),
    Figure("sampler idle", "idle/sampler", ".0%"),
    Figure("tok/s", "time/tokens_per_second", ",.0f"),
    Figure("s/step", "time/step", ".2f"),
)


def phase_of(metrics: Mapping[str, float]) -> str:
    """Return the phase of a record: `sft`, `eval` or `rl`.

    >>> phase_of({"sft/loss": 1.0}), phase_of({"eval/accuracy": 0.5}), phase_of({"reward/mean": 1.0})
    ('sft', 'eval', 'rl')
    """
    if any(name.startswith("sft/") for name in metrics):
        return "sft"
    return "eval" if ACCURACY in metrics and REWARD not in metrics else "rl"
