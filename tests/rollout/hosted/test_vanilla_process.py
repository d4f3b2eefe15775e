"""Replicas of `vanilla`: in whichever process a completion is drawn, it has the same tokens."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing
from http.server import ThreadingHTTPServer
from pathlib import Path

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY as SETS
from tests.devices import EIGHT
from tests.model.folders import FIXTURES
from tests.rollout.hosted.test_fleet import LINUX, batch, pid_of, synced, until

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, DovetailError
from dovetail.run.files import read_lines
from dovetail.spans import Span
from dovetail.training.learner import Learner
from dovetail.training.loop import train
from dovetail_kit.rollout import EngineCase, Numbers
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.checks import RANDOM
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.hosted.fleet import Fleet
from dovetail_rollout.hosted.handover import Handover
from dovetail_rollout.hosted.http import JsonClient, Refused
from dovetail_rollout.hosted.vanilla_server import Engine, Handler

TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)


def case(**params):
    models = (TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    return EngineCase.of(dovetail.get("rollout", "vanilla").bind(**params), *models, Numbers())


@pytest.mark.slow
def test_a_server_draws_parts_of_groups_as_whole_ones(tmp_path):
    each = case()
    handover = Handover.open(str(tmp_path), TINY, each.graphdef, adapter=False)
    served = Engine(str(handover.write(each.weights, 0)), {})
    prompts, keys = [[3, 4], [5, 6, 7]], make_keys(0, 2, 4)
    tokens, mask = np.array([[0, 3, 4], [5, 6, 7]]), np.array([[False, True, True], [True] * 3])
    with closing(each.open()) as alone:
        expected = alone.generate(tokens, mask, keys, RANDOM)
    words = np.asarray(jax.random.key_data(keys)).tolist()
    asked = [{"prompt": prompts[row], "key": words[row][place], "group": row} for row in (0, 1) for place in range(4)]
    body = {"sampling": attrs.asdict(RANDOM), "eos_ids": list(Numbers().eos_ids), "form": [3, 4, 8]}
    drawn = served.complete({**body, "requests": asked[1:7]})
    for answer, row in zip(drawn, range(1, 7), strict=True):
        assert answer["tokens"] == expected.tokens[row][expected.mask[row]].tolist()
        np.testing.assert_allclose(answer["logps"], expected.logps[row][expected.mask[row]], atol=1e-5)
    assert served.complete({**body, "requests": asked[4:7]}) == drawn[3:], "rows that fill up change no bit"
    served.load({"folder": str(handover.write(each.other, 1))})
    assert served.complete({**body, "requests": asked[1:7]}) != drawn


@pytest.mark.slow
def test_a_server_opens_a_folder_whose_config_has_its_sizes_in_a_part():
    served = Engine(str(FIXTURES / "gemma3"), {})
    body = {"sampling": attrs.asdict(RANDOM), "eos_ids": [], "form": [1, 1, 2]}
    (drawn,) = served.complete({**body, "requests": [{"prompt": [3, 4], "key": [0, 1], "group": 0}]})
    assert drawn["tokens"]


def test_servers_of_somebody_else_are_refused():
    with pytest.raises(ConfigError, match=r"rollout\.vanilla\.launcher = 'urls': .* use 'local' or 'ray'"):
        load(None, ["rollout.vanilla.launcher='urls'", "launcher.urls.urls=('http://h:1',)"])


def test_more_at_least_than_there_are():
    with pytest.raises(ConfigError, match=r"rollout\.vanilla\.floor = 3, and there are 2 replicas"):
        load(None, ["rollout.vanilla.replicas=2", "rollout.vanilla.floor=3"])


CORRECTED = ("sampling.top_k=5", "train.correction=('tis_token',)")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            ["rollout.vanilla.replicas=2", "rollout/mesh.first=4"],
            "does not compute with JAX in this process with rollout.vanilla.replicas = 2; remove rollout/mesh, or that",
        ),
        (["launcher.local.devices=('1',)", "rollout/mesh.first=4"], "with launcher.local.devices = ('1',); remove"),
        (["rollout.vanilla.replicas=2", *CORRECTED], "set sampling.logps = 'vocabulary', or remove the cut"),
        (["launcher.local.devices=('0,1',)"], "has '0,1': a replica of rollout 'vanilla' computes on one device"),
    ],
)
def test_what_processes_of_their_own_cannot_do_is_refused_when_the_config_is_read(sets, message):
    with pytest.raises(DovetailError, match=re.escape(message)):
        load(None, [*SETS, *sets])


def test_one_process_of_its_own_where_the_launcher_has_settings():
    for sets, apart in ([], False), (["launcher.local.devices=('1',)"], True), (["rollout.vanilla.replicas=2"], True):
        config = load(None, [*SETS, *CORRECTED, *sets, "sampling.logps='vocabulary'"])
        assert config.choice("train.rollout").bind().apart == apart
        assert not config.unused


def without_replica_1(engine, weights):
    """Sample with other weights while replica 1 is missing, and once it is back."""
    first = synced(engine, weights, 1)
    # on a busy machine the other replica may have done all of it before the loss is seen
    until(lambda: engine.host.members[1].losses and engine.host.members[1].routable, seconds=120)
    return [first, batch(engine)]


@LINUX
@pytest.mark.slow
def test_replicas_draw_the_same_tokens_and_survive_sigkill():
    with closing(case().open()) as alone:
        expected = [batch(alone)]
        cut = attrs.evolve(RANDOM, top_k=3, logps="vocabulary")
        expected.append(case().generate(alone, cut))
        alone.sync(case().other, 1)
        expected.append(batch(alone))
    each = case(replicas=2, restarts=1)
    with closing(each.open()) as engine:
        drawn = [batch(engine), each.generate(engine, cut)]
        os.kill(pid_of(engine, 1), signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="replica 1 is restarted"):
            drawn += without_replica_1(engine, each.other)
    for one, other in zip([*expected, expected[-1]], drawn, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)  # a share is a smaller batch: rounding


@pytest.mark.slow
def test_a_run_with_replicas_has_the_metrics_of_one_without(tmp_path):
    for name, more in (("alone", []), ("fleet", ["rollout.vanilla.replicas=2"])):
        train(load(None, [*SETS, "train.steps=3", *more]), tmp_path / name)
    one, other = (read_lines(tmp_path / name / "metrics.jsonl") for name in ("alone", "fleet"))
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        kept = {key for key in a if not key.startswith(("time/", "mismatch/"))}
        assert {key: a[key] for key in kept} == {key: b[key] for key in kept}
    status = json.loads(Path(tmp_path / "fleet" / "fleet" / "status.json").read_text())
    assert {each["weights"] for each in status["replicas"].values()} == {"version-3"}


class Watched:
    """A run whose replicas come and go, one at step 4 and one at step 9; what each of them compiles is counted."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.compiled = folder, {}
        start, learn = Fleet.start, Learner.learn

        def starting(fleet, served):
            self.members = fleet.members
            start(fleet, served)

        def learning(learner, batch, step, clock):
            self.at(step)
            return learn(learner, batch, step, clock)

        monkeypatch.setattr(Fleet, "start", starting)
        monkeypatch.setattr(Learner, "learn", learning)

    def at(self, step):
        """Have a replica join, wait until it may be asked, and let another one go."""
        if step == 4:
            self.count()
            assert main(["fleet", str(self.folder), "add"]) == 0
        elif step == 7:
            until(lambda: 2 in self.members and self.members[2].routable, seconds=300)
            self.count()
        elif step == 9:
            assert main(["fleet", str(self.folder), "remove", "0"]) == 0
        elif step >= 10:
            self.count()

    def count(self):
        for number, member in list(self.members.items()):
            if process := member.host.process:
                self.compiled.setdefault(number, []).append(process.log.read_text().count("Finished XLA compilation"))


@LINUX
@pytest.mark.slow
def test_a_run_whose_replicas_come_and_go_is_byte_for_byte_one_whose_replicas_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    ahead = ("train.steps=14", "train.staleness=1", "train.correction=('tis_token',)", "rollout.vanilla.replicas=2")
    config = load(None, [*SETS, *ahead, "sft.steps=0", "eval.every=5", "eval.batch_size=8", "eval.examples=8"])
    train(config, tmp_path / "stay")
    watched = Watched(tmp_path / "come", monkeypatch)
    train(config, tmp_path / "come")
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (tmp_path / "come" / name).read_bytes() == (tmp_path / "stay" / name).read_bytes(), name
    assert_same_parameters(tmp_path / "come", tmp_path / "stay")
    assert "mismatch/abs_max" in (tmp_path / "come" / "metrics.jsonl").read_text()

    assert watched.compiled.keys() == {0, 1, 2}
    for number, counts in watched.compiled.items():
        assert counts[0] == counts[-1] > 0, f"replica {number} compiles nothing when others come and go: {counts}"
    spans = [Span(*span) for line in read_lines(tmp_path / "come" / "spans.jsonl") for span in line["spans"]]
    assert {"replica 0", "replica 1", "replica 2"} <= {span.program for span in spans if span.name == "sampling"}


@pytest.mark.slow
def test_replicas_of_a_trainer_on_several_devices_sample_as_the_trainer_does(tmp_path):
    (tmp_path / "empty.gin").touch()
    said = {}
    for name, more in (("alone", []), ("fleet", ["rollout.vanilla.replicas=2"])):
        sets = (*SETS, "train.steps=2", "sft.steps=0", "eval.every=None", "mesh.fsdp=2", "mesh.tp=2", *more)
        words = [word for each in sets for word in ("--set", each)]
        command = [sys.executable, "-m", "dovetail", "train", "empty.gin", "--folder", name, *words]
        done = subprocess.run(command, env=EIGHT, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said[name] = read_lines(tmp_path / name / "metrics.jsonl")
    for one, other in zip(said["alone"], said["fleet"], strict=True):
        kept = {key for key in one if not key.startswith(("time/", "mismatch/", "phase"))}
        assert {key: one[key] for key in kept} == pytest.approx({key: other[key] for key in kept}, rel=1e-4, abs=1e-6)


def test_who_lacks_the_token_is_refused_before_anything_is_read(monkeypatch):
    monkeypatch.setenv("DOVETAIL_VANILLA_TOKEN", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for key in (None, "other"):
            for call in (lambda c: c.get("/health", timeout=120.0), lambda c: c.post("/load", {"folder": "/"})):
                with pytest.raises(Refused, match="401"):
                    call(JsonClient(url, "", key))
        assert JsonClient(url, "", "secret").get("/health", timeout=120.0) == {}
        server.shutdown()
