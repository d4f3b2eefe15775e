"""Every correction in a whole run of a tiny model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.run.files import read_lines
from dovetail.training.loop import train

SHORT = ("train.steps=1", "sft.steps=0", "eval.examples=2", "eval.every=1")


every_correction = [
    pytest.param(name, marks=[] if name == "tis_reject" else pytest.mark.slow) for name in dovetail.names("correction")
]


@pytest.mark.parametrize("name", every_correction)
def test_trains_a_step(name: str, tmp_path: Path) -> None:
    train(load(None, [*TINY, *SHORT, f"train.correction={name}"]), tmp_path)
    (step,) = [line for line in read_lines(tmp_path / "metrics.jsonl") if "policy_loss/loss" in line]
    numbers = {key: value for key, value in step.items() if isinstance(value, float)}
    assert all(math.isfinite(value) for value in numbers.values()), numbers
    # Sampler and trainer are one model here, and differ by rounding.
    assert numbers["mismatch/abs_max"] < 1e-3
    for size in ("correction/effective_sample_size", "mismatch/effective_sample_size"):
        assert numbers[size] == pytest.approx(1.0, abs=1e-3)


def test_an_unknown_divergence_is_refused_with_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"correction\.reject\.divergence"):
        load(None, [*TINY, "train.correction=reject", "correction.reject.divergence=k4"])
