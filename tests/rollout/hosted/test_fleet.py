"""Replicas that share a batch: nothing is lost and nothing comes twice, whatever becomes of them."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from tests.rollout.fake_vllm import FakeVllm, made_up
from tests.rollout.hosted_case import Drawer, case, qwen2

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, RunError
from dovetail.spans import recorded
from dovetail_kit.rollout import CHECKS
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.checks import RANDOM
from dovetail_rollout.hosted.http import JsonClient
from dovetail_rollout.hosted.roster import Roster
from dovetail_rollout.hosted.seeds import seeds_of
from dovetail_rollout.hosted.vllm_server import VllmServer
from dovetail_rollout.launcher.local import Local
from dovetail_rollout.launcher.urls import Urls

QWEN2 = qwen2(width=16, head_dim=8)
FAKE = f"{sys.executable} {Path(__file__).parents[1] / 'fake_vllm.py'}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("qwen2")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Requests are repeated without a pause."""
    monkeypatch.setattr("dovetail_rollout.hosted.vllm_server.PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def fakes():
    """Three servers with made-up completions."""
    with ExitStack() as stack:
        yield [stack.enter_context(FakeVllm()) for _ in range(3)]


def of(folder, *servers, **params):
    """The case of a fleet of these servers."""
    launcher = Urls(urls=tuple(server.url for server in servers))
    return case("vllm", folder, QWEN2, **{"launcher": launcher, "probe": 0.0, **params})


@pytest.fixture(autouse=True)
def all_the_time_to_die(monkeypatch):
    """How a process has ended is known only once its guard has got a turn."""
    monkeypatch.setattr("dovetail_rollout.hosted.process.MOMENT_SECONDS", 120.0)


def started(folder, replicas, **params):
    """The case of replicas that are processes of ours."""
    return case("vllm", folder, QWEN2, command=FAKE, replicas=replicas, probe=0.0, start_seconds=300.0, **params)


def batch(engine, prompts=16, samples=4):
    """Sample a batch."""
    tokens = np.arange(prompts * 3).reshape(prompts, 3) % 12 + 1
    return engine.generate(tokens, np.ones_like(tokens, bool), make_keys(0, prompts, samples), RANDOM)


def synced(engine, weights, version, **sizes):
    """Hand over weights, and sample a batch with them."""
    engine.sync(weights, version=version)
    return batch(engine, **sizes)


def back(engine, number, **sizes):
    """Sample a batch, wait until a replica that was lost is back, and sample another; return the first."""
    drawn, life = batch(engine, **sizes), engine.host.members[number].life
    until(lambda: engine.host.members[number].routable or life > 1)
    batch(engine, **sizes)
    return drawn


def seeds(server):
    return [call["seed"] for call in server.of("/v1/completions")]


def pid_of(engine, number):
    """Return the id of a replica's server process."""
    return server_of(engine.host.members[number].host.process)


def server_of(process):
    """Return the id of the server that runs under a guard."""
    guard = process._process.pid
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])


def until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def served():
    """Two servers that draw from the model that they are given."""
    drawer = Drawer()
    with FakeVllm(draw=drawer.draw, load=drawer.load) as one, FakeVllm(draw=drawer.draw, load=drawer.load) as other:
        yield one, other


CHOSEN = ("check_sync", "check_same_keys_same_completions", "check_failing_prompt", "check_close")


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.__name__ in CHOSEN], ids=lambda check: check.__name__
)
def test_conformance_of_a_fleet(check, served, folder):
    check(of(folder, *served, probe=None))


def test_a_batch_is_shared_evenly_and_comes_back_in_order(fakes, folder):
    with closing(of(folder, fakes[0]).open()) as alone:
        expected = batch(alone)
    del fakes[0].calls[:]
    with closing(of(folder, *fakes).open()) as engine, recorded() as spans:
        drawn = batch(engine)
    np.testing.assert_array_equal(drawn.tokens, expected.tokens)
    assert {(span.program, span.name) for span in spans} == {(f"replica {number}", "sampling") for number in range(3)}
    asked = [seeds(server) for server in fakes]
    assert max(map(len, asked)) - min(map(len, asked)) <= 1
    assert len({seed for each in asked for seed in each}) == 64


def test_a_slow_replica_gets_less(fakes, folder):
    def slowly(prompt, asked):
        until(lambda: len(seeds(fakes[1])) + len(seeds(fakes[2])) == 62)
        return made_up(prompt, asked)

    fakes[0].draw = slowly
    with closing(of(folder, *fakes, connections=2).open()) as engine:
        batch(engine)
    assert len(seeds(fakes[0])) == 2, "what it had at first"


def test_what_a_lost_replica_had_goes_to_the_others_with_its_seeds(fakes, folder):
    with closing(of(folder, *fakes).open()) as engine:
        expected = batch(engine)
        before = Counter(seed for server in fakes for seed in seeds(server))
        for server in fakes:
            del server.calls[:]
        fakes[1].answers["/v1/completions"] = 500, {"error": {"message": "EngineCore encountered an issue."}}
        with pytest.warns(RuntimeWarning, match="replica 1 is restarted: .*status 500: EngineCore"):
            drawn = batch(engine)
    np.testing.assert_array_equal(drawn.tokens, expected.tokens)
    assert Counter(seeds(fakes[0]) + seeds(fakes[2])) >= before, "the others were asked all of it"


def test_weights_that_one_does_not_take_are_served_by_the_others(fakes, folder):
    each = of(folder, *fakes, restarts=0)
    with closing(each.open()) as engine:
        fakes[2].answers["/collective_rpc"] = 500, {"error": {"message": "no"}}
        for server in fakes:
            del server.calls[:]
        with pytest.warns(RuntimeWarning, match="replica 2 is lost: .*/collective_rpc answers with status 500"):
            drawn = synced(engine, each.other, 7)
    assert set(drawn.versions.flat) == {7}
    assert not seeds(fakes[2]), "it has the old weights"
    assert len(seeds(fakes[0])) + len(seeds(fakes[1])) == 64


def test_a_late_joiner_reads_the_newest_weights_before_its_first_request(fakes, folder):
    each = of(folder, *fakes[:2])
    with closing(each.open()) as engine:
        engine.sync(each.other, version=1)
        engine.host.launcher = engine.host.places = Urls(urls=tuple(server.url for server in fakes))
        del fakes[2].calls[:]
        member = engine.host.add(2)
        until(lambda: member.routable)
        engine.sync(each.weights, version=2)
        batch(engine)
        served = [(path, body) for path, body in fakes[2].calls if path in ("/collective_rpc", "/v1/completions")]
    read = [body["kwargs"]["folder"].rsplit("/")[-1] for path, body in served if path == "/collective_rpc"]
    assert read == ["version-1", "version-2"]
    assert [path for path, _ in served[:2]] == ["/collective_rpc"] * 2
    assert len(served) > 10, "and then it works"


def test_weights_that_a_joiner_still_reads_are_kept_until_it_has_read_them(fakes, folder, monkeypatch):
    reads, goes_on, start = threading.Event(), threading.Event(), VllmServer.start

    def slowly(server, model):
        reads.set()
        assert goes_on.wait(120)
        assert (model / "config.json").exists()
        start(server, model)

    each = of(folder, *fakes[:2])
    with closing(each.open()) as engine:
        monkeypatch.setattr(VllmServer, "start", slowly)
        engine.host.launcher = engine.host.places = Urls(urls=tuple(server.url for server in fakes))
        member, first = engine.host.add(2), engine.folder
        assert reads.wait(120)
        for version in (1, 2):
            engine.sync(each.other, version)
        assert first.exists()
        goes_on.set()
        until(lambda: member.routable)
        engine.sync(each.weights, 3)
        assert [found.name for found in first.parent.glob("version-*")] == ["version-3"]
    assert not member.losses


def test_a_silent_replica_is_given_up(fakes, folder, monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.fleet.HEALTH_SECONDS", 0.05)
    with closing(of(folder, *fakes[:2], restarts=0).open()) as engine:
        fakes[1].patience, fakes[1].answers["/health"] = 60.0, (503, {})
        with pytest.warns(RuntimeWarning, match="replica 1 is lost"):
            drawn = batch(engine)
        assert drawn.mask.any(axis=1).all()
        assert len(seeds(fakes[0])) == 64


@pytest.mark.slow
def test_a_completion_that_is_overdue_is_asked_for_elsewhere_or_fails_alone(fakes, folder, monkeypatch):
    keys = seeds_of(make_keys(0, 16, 4)).ravel().tolist()
    once, always, asked, done = keys[5], keys[20], Counter(), threading.Event()
    post = JsonClient.post

    def limited(client, path, body=None, *, timeout=None):
        held = path == "/v1/completions" and (body["seed"] == always or (body["seed"] == once and not asked[once]))
        return post(client, path, body, timeout=timeout if held else 600.0)

    monkeypatch.setattr(JsonClient, "post", limited)

    def draw(prompt, body):
        seed = body["seed"]
        asked[seed] += 1
        if seed == always or (seed == once and asked[seed] == 1):
            done.wait(120)
        return made_up(prompt, body)

    with closing(of(folder, *fakes[:2], connections=4, request_seconds=8.0, restarts=0).open()) as engine:
        expected = batch(engine)
        for server in fakes:
            server.draw, server.patience = draw, 0.2
        said = (
            r"completions \[20\] failed .*: no answer within 8 s \(rollout\.vllm\.request_seconds\), asked of replicas"
        )
        with pytest.warns(RuntimeWarning, match=said):
            drawn = batch(engine)
        done.set()
    assert drawn.finish[20] == "error"
    rest = np.arange(64) != 20
    np.testing.assert_array_equal(drawn.tokens[rest], expected.tokens[rest])
    assert asked == Counter(keys) + Counter((once, always))


def test_too_few_replicas_end_the_run_with_every_reason(fakes, folder):
    with closing(of(folder, *fakes, restarts=0, floor=2).open()) as engine:
        for server in fakes[:2]:
            server.answers["/v1/completions"] = 500, {"error": {"message": "out of memory"}}
        with (
            pytest.warns(RuntimeWarning, match="is lost"),
            pytest.raises(
                RunError,
                match=r"'vllm' has 1 of 3 replicas left, and rollout\.vllm\.floor = 2; replica 0: .*out of memory",
            ),
        ):
            batch(engine)


def test_restarts_are_counted_for_each_replica(fakes, folder):
    with closing(of(folder, *fakes[:2], restarts=1).open()) as engine:
        fakes[1].answers["/v1/completions"] = 500, {"error": {"message": "always"}}
        with pytest.warns(RuntimeWarning, match="replica 1 is") as said:
            lose_twice(engine)
        assert not engine.host.members[1].routable
    assert [" is restarted: " in str(each.message) for each in said] == [True, False]


def lose_twice(engine):
    back(engine, 1)
    until(lambda: engine.host.members[1].life == 2)
    batch(engine)


def test_nobody_answers_at_the_start(folder):
    urls = ("http://127.0.0.1:9", "http://127.0.0.1:10")
    with pytest.warns(RuntimeWarning), pytest.raises(RunError, match="0 of 2 replicas left.*no vLLM server at"):
        case("vllm", folder, QWEN2, launcher=Urls(urls=urls)).open()


def test_a_start_that_fails_in_an_unforeseen_way_is_a_loss(fakes, folder, monkeypatch):
    def start(server, model):
        raise FileNotFoundError("no such folder")

    monkeypatch.setattr(VllmServer, "start", start)
    with pytest.warns(RuntimeWarning), pytest.raises(RunError, match="0 of 2 .*replica 1: FileNotFoundError: no such"):
        of(folder, *fakes[:2]).open()


@pytest.mark.slow
def test_replicas_come_and_go_while_a_run_goes_on(fakes, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Roster, "run", tmp_path)
    monkeypatch.setattr("dovetail_rollout.hosted.fleet.TELL_SECONDS", 0.02)
    Roster(tmp_path / "fleet").want([0, 1])
    each = of(folder, *fakes, connections=1, floor=2)
    with closing(each.open()) as engine:
        expected = batch(engine)
        assert not seeds(fakes[2])
        assert main(["fleet", str(tmp_path), "add"]) == 0

        def awaiting(prompt, asked):
            until(lambda: len(fakes[0].calls) + len(fakes[1].calls) < 10 or seeds(fakes[2]))
            return made_up(prompt, asked)

        for server in fakes:
            server.draw = awaiting
            del server.calls[:]
        drawn = batch(engine)
        asked = [len(seeds(server)) for server in fakes]
        assert asked[2] > 10, "it works in the batch that was going on when it came"
        assert main(["fleet", str(tmp_path), "remove", "0"]) == 0
        again = synced(engine, each.other, 1)
        assert seeds(fakes[0])[asked[0] :] == []
        assert main(["fleet", str(tmp_path)]) == 0
        assert "1: live, version-1, lost 0 times\n2: live, version-1" in capsys.readouterr().out
        assert main(["fleet", str(tmp_path), "remove", "1"]) == 1
        assert "2 replicas are left, and the run's floor is 2" in capsys.readouterr().err
        assert main(["fleet", str(tmp_path), "add"]) == 0
        with pytest.warns(RuntimeWarning, match=r"replica 3 cannot be added: launcher\.urls\.urls has 3 addresses"):
            batch(engine)
    np.testing.assert_array_equal(drawn.tokens, expected.tokens)
    np.testing.assert_array_equal(again.tokens, expected.tokens)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


@pytest.mark.slow
@LINUX
def test_replicas_of_ours_survive_sigkill_in_mid_batch_and_during_a_sync(folder, monkeypatch):
    each = started(folder, 2, flags=("--patience", "0.2"), connections=8)
    with closing(each.open()) as engine:
        expected = batch(engine, prompts=4, samples=8)

        def kill(number, wait):
            victim = pid_of(engine, number)
            threading.Timer(wait, os.kill, (victim, signal.SIGKILL)).start()
            return victim

        kill(0, 0.3)
        with pytest.warns(RuntimeWarning, match=r"replica 0 is restarted: .*was killed \(SIGKILL\)"):
            drawn = back(engine, 0, prompts=4, samples=8)
        np.testing.assert_array_equal(drawn.tokens, expected.tokens)

        load = VllmServer.load

        def killed_first(server, folder):
            if server is engine.host.members[1].host and not engine.host.members[1].losses:
                os.kill(pid_of(engine, 1), signal.SIGKILL)
            load(server, folder)

        monkeypatch.setattr(VllmServer, "load", killed_first)
        with pytest.warns(RuntimeWarning, match=r"replica 1 is restarted: .*/collective_rpc: the connection broke"):
            again = synced(engine, each.other, 4, prompts=4, samples=8)
        np.testing.assert_array_equal(again.tokens, expected.tokens)
        assert set(again.versions.flat) == {4}
        until(lambda: engine.host.members[1].routable)
        assert "version-4" in engine.host.members[1].host.process.log.read_text()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["rollout.vllm.floor=2"], r"floor = 2, but there are 1 replicas; it can be 1 at most"),
        (["rollout.vllm.replicas=2", "rollout.vllm.url='http://h:1'"], r"name all addresses in launcher\.urls\.urls"),
        (["rollout.vllm.replicas=2", "rollout.vllm.sleep=True"], r"each has devices of its own"),
        (["rollout.vllm.replicas=2", "rollout.vllm.mode='in_process'"], r"replicas need mode = 'server'"),
        (["rollout.vllm.launcher='urls'"], r"launcher 'urls' needs launcher\.urls\.urls"),
        (["rollout.vllm.launcher='slurm'"], r"unknown launcher 'slurm'"),
        (
            [
                "rollout.vllm.launcher='urls'",
                "launcher.urls.urls=('http://h:1','http://h:2')",
                "rollout.vllm.replicas=3",
            ],
            r"replicas = 3, but launcher\.urls\.urls has 2",
        ),
        (
            ["rollout.vllm.launcher='urls'", "launcher.urls.urls=('http://h:1','http://h:1')"],
            r"names http://h:1 twice",
        ),
    ],
)
def test_what_a_config_cannot_ask_for(sets, message):
    with pytest.raises(ConfigError, match=message):
        load(None, ["train.rollout=vllm", *sets])


def test_devices_are_given_out_in_turn():
    places = Local(devices=("0,1", "2,3")).open(3)
    assert [places.place(number).variables["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["0,1", "2,3", "0,1"]
