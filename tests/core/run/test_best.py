"""The best checkpoint of a run: which it is, and that it is kept."""

from __future__ import annotations

import math

import jax.numpy as jnp
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import ConfigError, RunError
from dovetail.run.best import check_best, scores
from dovetail.run.checkpoint import Checkpoints, Saved
from dovetail.training.loop import train
from dovetail_lab.one_run import open_run

KEPT = ("run.keep_best='eval/accuracy'", "run.keep_checkpoints=1")


def filled(folder, keep, values, *, last):
    """The numbers of the checkpoints that are left of those from 1 to `last`."""
    found = Checkpoints(folder, keep, values)
    for number in range(1, last + 1):
        found.save(number, {"x": jnp.zeros(1)}, Saved(phase="rl", step=number, data={}, journal={}))
    return found


@pytest.mark.parametrize(
    ("keep", "values", "left"),
    [
        (1, {}, [5]),
        (2, {}, [4, 5]),
        (1, {2: 0.9, 4: 0.5}, [2, 5]),
        (1, {5: 0.9, 4: 0.5}, [5]),
        (2, {3: 0.5, 1: 0.5}, [1, 4, 5]),
        (None, {2: 0.9}, [1, 2, 3, 4, 5]),
    ],
)
def test_the_best_is_kept_beside_the_newest(keep, values, left, tmp_path):
    found = filled(tmp_path, keep, values, last=5)
    assert found.numbers == left
    found.close()


def test_a_value_that_comes_late_finds_its_checkpoint_among_those_left(tmp_path):
    values = {}
    found = filled(tmp_path, 2, values, last=3)
    values.update({1: 1.0, 2: 0.9, 3: 0.1})
    for number in (4, 5):
        found.save(number, {"x": jnp.zeros(1)}, Saved(phase="rl", step=number, data={}, journal={}))
    assert found.numbers == [2, 4, 5]
    found.close()


def test_scores_are_those_of_evaluations_by_number():
    config = load(None, [*TINY, *KEPT])
    lines = [
        {"step": 2, "eval/accuracy": 0.5, "eval/length": 3.0},
        {"step": 3, "loss": 1.0},
        {"step": 4, "eval/accuracy": math.nan},
        {"step": 6, "eval/accuracy": None},
    ]
    assert scores(config, lines) == {config.sft.steps + 2: 0.5}
    assert scores(load(None, TINY), lines) == {}
    with pytest.raises(
        RunError, match=r"'eval/accuracy' is not a metric .* Did you mean 'eval/accurate'\? There: eval/ac"
    ):
        scores(config, [{"step": 2, "eval/accurate": 0.5}])


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["run.keep_best='loss'"], "'loss' is not a metric of evaluations"),
        (["eval.every=3"], "eval.every = 3 and run.checkpoint_every = 2; set eval.every to a multiple of 2"),
        (["eval.every=None"], "eval.every = None and run.checkpoint_every = 2; set eval.every$"),
    ],
)
def test_what_could_not_be_kept_is_refused(sets, said, tmp_path):
    config = load(None, [*TINY, *KEPT, *sets])
    with pytest.raises(ConfigError, match=said):
        check_best(config)
    with pytest.raises(ConfigError, match=said):
        train(config, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_keeps_its_best_even_if_it_is_resumed(tmp_path, monkeypatch):
    config = load(None, [*TINY, *KEPT, "train.steps=8", "eval.temperature=1.0", "train.lr=0.03"])
    first, save = config.sft.steps, Checkpoints.save

    def stopped(self, number, state, saved):
        if number == first + 6:
            raise KeyboardInterrupt
        return save(self, number, state, saved)

    monkeypatch.setattr(Checkpoints, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path)
    monkeypatch.undo()
    train(config, tmp_path)
    recorded = open_run(tmp_path).metrics()
    pairs = zip(recorded["step"].tolist(), recorded["eval/accuracy"].tolist(), strict=True)
    values = {step: value for step, value in pairs if not math.isnan(value)}
    assert sorted(values) == [0, 2, 4, 6, 8]
    best = max(values, key=lambda step: (values[step], -step))
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=None)
    assert checkpoints.numbers == sorted({first + best, first + 8})
    checkpoints.close()
