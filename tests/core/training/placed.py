"""Run by test_placement.py in a process with eight devices: train each of some configs in its folder."""

import json
import sys
from pathlib import Path

import jax

import dovetail
from dovetail.config import load
from dovetail.training.loop import train


def reads_judge(logps, judge_logps, mask):
    """A term of a plugin, about a role of a plugin."""
    return jax.numpy.where(mask, logps - judge_logps, 0.0)


if __name__ == "__main__":
    assert jax.device_count() == 8, jax.devices()
    dovetail.register("loss_term", "reads_judge", reads_judge)
    for folder, overrides in json.loads(sys.argv[1]):
        train(load(None, overrides), Path(folder))
