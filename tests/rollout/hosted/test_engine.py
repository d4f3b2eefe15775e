"""The rollout protocol over a host."""

import os
import signal

import jax
import numpy as np
import pytest
from tests.core.training.tiny import TINY
from tests.rollout.hosted.test_fleet import FAKE, LINUX, server_of

from dovetail.config import load
from dovetail.errors import RunError
from dovetail.run.blocks import blocks
from dovetail.run.journal import MESSAGES
from dovetail.run.summary import series
from dovetail.training.drawing import Drawing
from dovetail.training.loop import train
from dovetail_rollout.hosted.engine import stopped
from dovetail_rollout.hosted.seeds import seeds_of
from dovetail_rollout.hosted.vllm_server import VllmServer


def test_seeds_are_a_function_of_the_key_alone():
    keys = jax.random.split(jax.random.key(0), (40, 50))
    seeds = seeds_of(keys)
    assert len(set(seeds.ravel().tolist())) == 2000
    assert seeds.min() >= 0
    assert seeds.max() > 2**62, "all 63 bits are in use"
    np.testing.assert_array_equal(seeds_of(keys[3:5, 7:9]), seeds[3:5, 7:9])


def test_seeds_of_another_kind_of_key():
    keys = jax.random.split(jax.random.key(0, impl="rbg"), (2, 3))
    assert len(set(seeds_of(keys).ravel().tolist())) == 6


def test_a_stop_string_ends_with_the_token_that_completes_it():
    first = stopped(("cd", "zz"), lambda tokens: "".join("abcdefgh"[2 * t : 2 * t + 2] for t in tokens))
    assert first([0, 1, 2]) == 2
    assert first([0, 2]) is None
    assert first([]) is None


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_server_that_is_killed_once_too_often_ends_the_run_behind_the_batches_before(
    tmp_path, monkeypatch, capsys, in_flight
):
    """It dies with two batches in the channels, is restarted, and dies again; the same command goes on from there."""
    dies_at, steps, drawn, draw, complete = 4, 6, [], Drawing._round, VllmServer.complete
    config = load(
        None,
        [
            *(*TINY, "sft.steps=0", f"train.steps={steps}", "eval.every=None", "run.checkpoint_every=99"),
            *("train.staleness=2", "train.correction=['tis_token']", f"train.in_flight={in_flight}"),
            *("train.rollout=vllm", f"rollout.vllm.command='{FAKE}'", "rollout.vllm.probe=0.0"),
            *("model.decoder.head_dim=8", "run.keep_messages=True"),
        ],
    )

    def drawing(self, number, *arguments):
        drawn.append(number)
        return draw(self, number, *arguments)

    def completing(server, *arguments):
        if drawn[-1:] == [dies_at]:
            os.kill(server_of(server.process), signal.SIGKILL)
        return complete(server, *arguments)

    monkeypatch.setattr(Drawing, "_round", drawing)
    monkeypatch.setattr(VllmServer, "complete", completing)
    with (
        pytest.warns(RuntimeWarning, match=r"'vllm' is restarted: .*was killed \(SIGKILL\)"),
        pytest.raises(RunError, match=r"'vllm' is lost: .*was killed \(SIGKILL\)"),
    ):
        train(config, tmp_path)
    monkeypatch.undo()
    assert f"saved the state after rl step {dies_at}" in capsys.readouterr().err
    assert [step for step, _ in series(tmp_path, "reward/mean")] == [1, 2, 3, 4]
    train(config, tmp_path)
    assert [step for step, _ in series(tmp_path, "reward/mean")] == [1, 2, 3, 4, 5, 6]
    assert [head["batch"] for head, _ in blocks(tmp_path / MESSAGES)] == list(range(steps))
