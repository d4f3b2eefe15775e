"""Whole runs with a curriculum, process rewards, a replay, a filter and a reward that ranks: records, resumption, refusals."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.core.train.test_loop import assert_same_parameters
from tests.core.train.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import RewardError
from dovetail.run.summary import read_lines
from dovetail.train.loop import train

WARM = (*TINY, "sft.steps=0")
TOGETHER = (
    *WARM,
    "train.curriculum=difficulty",
    "curriculum.difficulty.success_at=-1.6",
    "train.rewards=['exact_match', 'match_format_approximately', 'relative_length', 'varied']",
    "train.process_rewards=['equations', 'first_token']",
    "process_reward.first_token.coef=0.5",
    "train.group_filter=nonzero_variance",
    "train.refill_rounds=2",
    "train.replay=recent",
    "replay.recent.groups=2",
    "replay.recent.capacity=4",
    "train.correction=['tis_token']",
    "train.advantage=reinforce_plus_plus",
    "train.mini_batch_size=12",
    "train.epochs=2",
)


def first_token(tokens):
    """A process reward that a policy of five minutes can earn: one for a completion that begins with an even id."""
    return [[float(ids[0] % 2 == 0)] + [0.0] * (len(ids) - 1) if ids else [] for ids in tokens]


def varied(tokens, logps, group_ids):
    """A reward that reads ids, log-probabilities and groups, so that groups differ."""
    return [
        float(sum(ids) % 3 == 0) + 0.0 * sum(of) + 0.0 * group
        for ids, of, group in zip(tokens, logps, group_ids, strict=True)
    ]


@pytest.fixture
def components():
    dovetail.register("process_reward", "first_token", first_token)
    dovetail.register("reward", "varied", varied)


def run(folder: Path, *overrides: str) -> list[dict]:
    train(load(None, [*TOGETHER, *overrides]), folder)
    return [line for line in read_lines(folder / "metrics.jsonl") if "reward/mean" in line]


class _Interrupted(Exception):
    pass


def test_all_of_them_together_run_and_go_on_bit_for_bit(components, tmp_path, monkeypatch):
    from dovetail.run.journal import Journal

    lines = run(tmp_path / "undisturbed")
    assert [line["replay/groups"] for line in lines[:1]] == [0.0]
    assert any(line["replay/groups"] > 0 for line in lines)
    assert all(line["curriculum/seen"] > 0 for line in lines)
    assert all(0 <= line["process_reward/first_token"] <= 1 for line in lines)
    assert any(line["process_reward/first_token"] > 0 for line in lines)
    assert any(line["group_filter/rounds"] > 1 for line in lines)
    write = Journal.metrics

    def stop(self, phase, step, values):
        write(self, phase, step, values)
        if step == 3:
            raise _Interrupted

    monkeypatch.setattr(Journal, "metrics", stop)
    with pytest.raises(_Interrupted):
        run(tmp_path / "disturbed")
    monkeypatch.undo()
    run(tmp_path / "disturbed")
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (tmp_path / "disturbed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    assert_same_parameters(tmp_path / "disturbed", tmp_path / "undisturbed")
