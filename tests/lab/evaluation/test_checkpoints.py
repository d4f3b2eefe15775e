"""The checkpoint of a run that a user names."""

from __future__ import annotations

import json
from contextlib import closing

import jax.numpy as jnp
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.checkpoint import Checkpoints, Saved
from dovetail_lab.evaluation.checkpoints import find

KEPT = ("run.keep_best='eval/accuracy'",)


def run_in(folder, config, accuracies):
    """The checkpoints of a run with these evaluations, by step."""
    found = Checkpoints(folder / "checkpoints", keep=None)
    for step in accuracies:
        saved = Saved(phase="rl", step=step, data={}, journal={})
        found.save(config.sft.steps + step, {"x": jnp.zeros(1)}, saved)
    lines = [{"phase": "rl", "step": step, "eval/accuracy": value} for step, value in accuracies.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return found


def test_a_checkpoint_is_found_by_its_step_as_the_newest_and_as_the_best(tmp_path):
    config = load(None, [*TINY, *KEPT])
    first = config.sft.steps
    with closing(run_in(tmp_path, config, {2: 0.1, 4: 0.5, 6: 0.3})) as checkpoints:
        assert find("best", config, tmp_path, checkpoints) == first + 4
        assert find("newest", config, tmp_path, checkpoints) == find("6", config, tmp_path, checkpoints) == first + 6


@pytest.mark.parametrize(
    ("word", "sets", "accuracies", "said"),
    [
        ("newest", KEPT, {}, "holds no checkpoint yet"),
        ("3", KEPT, {2: 0.1, 4: 0.5}, r"no checkpoint '3'\. There: newest, best, 2, 4"),
        ("best", (), {2: 0.1, 4: 0.5}, "without run.keep_best = 'eval/METRIC'; name a step: 2, 4"),
        ("best", KEPT, {2: None}, "no evaluation of a checkpoint that is still there yet"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(word, sets, accuracies, said, tmp_path):
    config = load(None, [*TINY, *sets])
    with (
        closing(run_in(tmp_path, config, accuracies)) as checkpoints,
        pytest.raises(RunError, match=said),
    ):
        find(word, config, tmp_path, checkpoints)
