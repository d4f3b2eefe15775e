"""Replicas of `vanilla`: in whichever process a completion is drawn, it is the same to the bit."""

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from flax import nnx
from tests.core.train.tiny import TINY as SETS
from tests.rollout.hosted.test_fleet import LINUX, batch, pid_of, until

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.run.files import read_lines
from dovetail.train.loop import train
from dovetail_kit.rollout import EngineCase, Numbers
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.hosted.vanilla_server import Engine

TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)


def case(**params):
    models = (TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    return EngineCase.of(dovetail.get("rollout", "vanilla").bind(**params), *models, Numbers())


def test_a_server_draws_groups_that_were_cut_as_whole_ones(tmp_path):
    """Requests of one prompt may come in two shares, and groups of different sizes in one."""
    each = case()
    TINY.export(tmp_path, nnx.merge(each.graphdef, *each.weights), vocab_size=Numbers().vocab_size) if hasattr(
        TINY, "export"
    ) else pytest.skip("no exporter")


def test_more_at_least_than_there_are():
    with pytest.raises(ConfigError, match=r"rollout\.vanilla\.floor = 3, and there are 2 replicas"):
        load(None, ["rollout.vanilla.replicas=2", "rollout.vanilla.floor=3"])


@LINUX
@pytest.mark.slow
def test_replicas_draw_the_same_bytes_and_survive_sigkill():
    with closing(case().open()) as alone:
        expected = [batch(alone)]
        alone.sync(case().other, 1)
        expected.append(batch(alone))
    each = case(replicas=2, restarts=1)
    with closing(each.open()) as engine:
        drawn = [batch(engine)]
        os.kill(pid_of(engine, 1), signal.SIGKILL)
        engine.sync(each.other, 1)
        with pytest.warns(RuntimeWarning, match="replica 1 is restarted"):
            drawn.append(batch(engine))
        until(lambda: engine.host.members[1].routable, seconds=120)
        drawn.append(batch(engine))
    for one, other in zip([*expected, expected[1]], drawn, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.logps, other.logps)


@pytest.mark.slow
def test_a_run_with_replicas_has_the_metrics_of_one_without(tmp_path):
    for name, more in (("alone", []), ("fleet", ["rollout.vanilla.replicas=2"])):
        train(load(None, [*SETS, "train.steps=3", *more]), tmp_path / name)
    one, other = (read_lines(tmp_path / name) for name in ("alone", "fleet"))
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        kept = {key for key in a if not key.startswith(("time/", "mismatch/"))}
        assert {key: a[key] for key in kept} == {key: b[key] for key in kept}
    status = json.loads(Path(tmp_path / "fleet" / "fleet" / "status.json").read_text())
    assert {each["weights"] for each in status["replicas"].values()} == {"version-3"}
