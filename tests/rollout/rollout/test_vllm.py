"""The vLLM engine: its client against a server that answers as vLLM does, and the server as a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from contextlib import closing
from pathlib import Path

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.core.training.tiny import TINY
from tests.rollout.fake_vllm import FakeVllm, made_up
from tests.rollout.hosted.test_fleet import FAKE, LINUX, server_of, until
from tests.rollout.hosted_case import Drawer, case, models, qwen2

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, RunError
from dovetail.protocols import Weights
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.training.loop import train
from dovetail.training.setup import set_up
from dovetail_kit.rollout import CHECKS, Numbers
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.checks import RANDOM
from dovetail_lab.kept import kept_by
from dovetail_model.model.pretrained import Pretrained
from dovetail_rollout.hosted.process import free_port

QWEN2 = qwen2(width=16, head_dim=8)


@pytest.fixture(scope="module")
def drawer():
    return Drawer()


@pytest.fixture(scope="module")
def served(drawer):
    """A server that draws from the model that it is given."""
    with FakeVllm(draw=drawer.draw, load=drawer.load) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("qwen2")


@pytest.fixture
def fake():
    """A server with made-up completions."""
    with FakeVllm() as server:
        yield server


@pytest.fixture
def at_once(monkeypatch):
    """Requests are repeated without a pause."""
    monkeypatch.setattr("dovetail_rollout.hosted.vllm_server.PAUSES", (0.0, 0.0, 0.0))


def of(folder, **params):
    """The case of a server that makes completions up, whose log-probabilities nobody compares."""
    return case("vllm", folder, QWEN2, **{"probe": 0.0, **params})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance_of_the_client(check, served, folder):
    check(of(folder, url=served.url, probe=None))


@pytest.mark.slow
def test_a_run_samples_from_the_server_while_it_trains(fake, tmp_path):
    ahead = ("sft.steps=0", "train.steps=4", "train.staleness=2", "train.correction=['tis_token']", "eval.every=None")
    engine = ("train.rollout=vllm", f"rollout.vllm.url='{fake.url}'", "rollout.vllm.probe=0.0")
    train(load(None, [*TINY, "model.decoder.head_dim=8", *engine, *ahead]), tmp_path / "run")
    assert [value for _, value in series(tmp_path / "run", "staleness/max")] == [0, 1, 2, 2]
    assert all(line["rollout/seconds_per_token"] > 0 for line in read_lines(tmp_path / "run" / "timings.jsonl", "rl"))
    # those that it opens with, and version 1, with which the last batch is drawn
    assert len({call["kwargs"]["folder"] for call in fake.of("/collective_rpc")}) == 2


@pytest.mark.slow
def test_the_pace_is_that_of_a_completion_that_waits_for_no_other(fake, folder):
    fake.patience = 0.1
    each = of(folder, url=fake.url, connections=1)
    with closing(each.open()) as engine:
        assert engine.timings() == {}, "nothing has been sampled"
        began = time.monotonic()
        lengths = engine.generate(*each.prompts(), make_keys(), RANDOM).mask.sum(axis=1)
        took = time.monotonic() - began
    assert 0.1 / lengths.max() <= engine.timings()["seconds_per_token"] <= took / lengths.sum()


def after(seconds, *weights):
    """Newer weights that come one after another, so many seconds after the last."""
    waiting, since = list(weights), [time.monotonic()]

    def newer():
        if not waiting or time.monotonic() - since[0] < seconds:
            return None
        since[0] = time.monotonic()
        return waiting.pop(0)

    return newer


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("stop", [(), ("nothing",)])
def test_completions_go_on_under_newer_weights(replicas, stop, fake, folder):
    fake.pace = 0.2
    where = {"url": fake.url}
    if replicas > 1:
        where = {
            "launcher": dovetail.get("launcher", "urls").bind(
                urls=(fake.url, fake.url.replace("127.0.0.1", "localhost"))
            ),
            "connections": 4,
        }
    each, sampling = of(folder, **where), attrs.evolve(RANDOM, max_tokens=56, stop=stop)
    with closing(each.open()) as engine:
        prompts, keys = each.prompts(), make_keys()
        whole = engine.generate(*prompts, keys, sampling)
        del fake.calls[:]
        drawn = engine.generate(*prompts, keys, sampling, newer=after(0.3, (each.other, 1), (each.weights, 2)))
        assert set(engine.generate(*prompts, keys, sampling).versions.flat) == {2}
    assert set(drawn.finish) <= {"eos", "length"}
    lengths = drawn.mask.sum(axis=1)
    assert np.all(drawn.mask == (np.arange(56) < lengths[:, None]))
    assert np.all(np.diff(drawn.versions, axis=1) >= 0)
    of_two = [row for row in range(len(lengths)) if len(set(drawn.versions[row][drawn.mask[row]])) > 1]
    assert of_two, "some were in the middle"
    before = drawn.versions == 0
    np.testing.assert_array_equal(drawn.tokens[before & drawn.mask], whole.tokens[before & drawn.mask])
    asked = fake.of("/v1/completions")
    longest = max(len(row) for row in prompts[0])
    assert all(len(call["prompt"]) + call["max_tokens"] <= longest + 56 for call in asked), (
        "the limit is that of all parts"
    )
    seeds = [call["seed"] for call in asked]
    assert len(set(seeds)) > len(lengths), "a part has random numbers of its own"


def test_a_completion_that_has_not_begun_is_broken_off_too(fake, folder):
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine:
        fake.patience, waiting = 600.0, [(each.other, 1)]
        prompts, keys = each.prompts(), make_keys()

        def newer():
            if not waiting or fake.arrived.count("/v1/completions") < keys.size:
                return None
            fake.patience = 0.0
            return waiting.pop()

        began = time.monotonic()
        drawn = engine.generate(*prompts, keys, RANDOM, newer=newer)
    assert time.monotonic() - began < 500, "nobody waited for the answers to the first requests"
    assert set(drawn.versions.flat) == {1}


@pytest.mark.slow
def test_a_run_with_weights_in_flight(fake, tmp_path):
    fake.pace = 0.05
    ahead = ("sft.steps=0", "train.steps=6", "train.staleness=2", "train.in_flight=True", "eval.every=3")
    more = ("train.correction=['tis_token']", "sampling.max_tokens=40", "eval.at_start=False")
    engine = ("train.rollout=vllm", f"rollout.vllm.url='{fake.url}'", "rollout.vllm.probe=0.0")
    train(load(None, [*TINY, "model.decoder.head_dim=8", *engine, *ahead, *more]), tmp_path / "run")
    assert max(value for _, value in series(tmp_path / "run", "staleness/max")) <= 2
    means = [value for _, value in series(tmp_path / "run", "staleness/mean")]
    assert len(means) == 6
    assert any(value % 1 > 0 for value in means), "some tokens of a batch are newer than others"
    config = load(tmp_path / "run" / "config.gin", ["run.keep_messages=False"])
    train(config, tmp_path / "again", opening=kept_by(tmp_path / "run"))
    again, first = (tmp_path / name / "metrics.jsonl" for name in ("again", "run"))
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.slow
def test_a_server_that_samples_from_another_model_is_refused(drawer, tmp_path):
    """It takes the default base of the rotary positions, as programs do that do not know how transformers 5 spells it."""
    config = {name: value for name, value in QWEN2.items() if name != "rope_theta"}
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}

    def load(folder):
        values = json.loads((folder / "config.json").read_text())
        assert values.pop("rope_parameters") == config["rope_parameters"]
        assert values.pop("rope_theta") == 1e6, "the old spelling is there too"
        (folder / "config.json").write_text(json.dumps(values))
        drawer.load(folder)

    with FakeVllm(draw=drawer.draw, load=load) as server:
        with pytest.raises(RunError, match=r"'vllm' does not sample from this model: .* rollout\.vllm\.probe"):
            case("vllm", tmp_path / "q", config, url=server.url).open()
        assert not Path(server.of("/collective_rpc")[0]["kwargs"]["folder"]).exists(), "nothing is left behind"
        case("vllm", tmp_path / "q", config, url=server.url, probe=10.0).open().close()


def test_what_the_first_comparison_does_not_reach_is_said(fake, tmp_path, capsys):
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = QWEN2 | {"use_sliding_window": True, "sliding_window": 200, "max_window_layers": 0}
    config |= {"rope_scaling": scaled | {"original_max_position_embeddings": 256}}
    case("vllm", tmp_path / "q", config, url=fake.url, probe=100.0).open().close()
    said = capsys.readouterr().err.splitlines()
    for name, length in (("sliding_window", 200), ("original_max_position_embeddings", 256)):
        assert (
            sum(f"compared over 56 tokens, which do not reach this model's {name} = {length};" in line for line in said)
            == 1
        )
    case("vllm", tmp_path / "plain", QWEN2, url=fake.url, probe=100.0).open().close()
    assert "compared over" not in capsys.readouterr().err


def test_every_setting_is_sent_so_that_no_default_of_the_server_counts(fake, folder):
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine:
        each.generate(engine, attrs.evolve(RANDOM, top_k=4))
    asked = fake.of("/v1/completions")
    assert len(asked) == 32
    assert len({call["seed"] for call in asked}) == 32, "a seed for each completion"
    assert all(0 <= call["seed"] < 2**63 for call in asked)
    common = {name: value for name, value in asked[0].items() if name not in ("prompt", "seed")}
    assert common == {
        "model": "policy",
        "max_tokens": 8,
        "temperature": 0.8,
        "top_k": 4,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,
        "stop_token_ids": [1],
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    assert sorted(map(len, (call["prompt"] for call in asked))) == [1] * 8 + [3] * 8 + [5] * 8 + [6] * 8, "no padding"


def test_a_sync_is_read_in_place_and_empties_the_prefix_cache(fake, folder):
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine:
        del fake.calls[:]
        engine.sync(each.other, version=3)
        (name, body), (then, _) = fake.calls
        assert (name, body["method"], then) == ("/collective_rpc", "dovetail_reload", "/reset_prefix_cache")
        new = Path(body["kwargs"]["folder"])
        assert (new / "model.safetensors").exists()
        engine.sync(each.weights, version=4)
        assert not new.exists(), "versions that nobody reads any more are dropped"
        root = new.parent
    assert not root.exists()


def test_a_prefix_cache_that_is_in_use_is_emptied_a_moment_later(fake, folder):
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine:
        del fake.calls[:]
        fake.busy = 2
        engine.sync(each.other, version=1)
        assert len(fake.of("/reset_prefix_cache")) == 3


def test_a_server_that_sleeps_is_woken(fake, folder):
    each = of(folder, url=fake.url, sleep=True)
    with closing(each.open()) as engine:
        del fake.calls[:]
        each.generate(engine, RANDOM)
        each.generate(engine, RANDOM)
        engine.sync(each.other, version=1)
    order = [name for name, _ in fake.calls if name != "/v1/completions"]
    assert order == [
        "/sleep?level=1",
        "/wake_up",
        "/sleep?level=1",
        "/wake_up",
        "/collective_rpc",
        "/reset_prefix_cache",
    ]


def test_who_finds_a_stop_string_hangs_up(folder):
    with FakeVllm(draw=lambda prompt, asked: ([5] * 4000, [-1.0] * 4000)) as server:
        each = of(folder, url=server.url)
        with closing(each.open()) as engine:
            drawn = each.generate(engine, attrs.evolve(RANDOM, stop=(" 5 5",)))
        assert set(drawn.finish) == {"stop"}
        assert set(drawn.mask.sum(axis=1)) == {2}
        assert all(call["stream"] for call in server.of("/v1/completions"))


def test_a_prompt_that_is_refused_costs_the_others_nothing(fake, folder):
    each = of(folder, url=fake.url)
    tokens = np.full((2, 70), 3)
    mask = np.arange(70) >= np.array([0, 66])[:, None]
    with closing(each.open()) as engine:
        with pytest.warns(RuntimeWarning, match=r"completions \[0, 1\] failed .* too long"):
            drawn = engine.generate(tokens, mask, make_keys(0, 2, 2), RANDOM)
        assert list(drawn.finish[:2]) == ["error"] * 2
        assert drawn.mask[2:].any(axis=1).all()
        with pytest.raises(RunError, match="every completion failed: the prompt is too long"):
            engine.generate(tokens[:1], mask[:1], make_keys(0, 1, 2), RANDOM)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("model_config", "logprobs_mode", "raw_logprobs", "start it with --logprobs-mode processed_logprobs"),
        ("parallel_config", "worker_extension_cls", "", "--worker-extension-cls dovetail_vllm_worker"),
    ],
)
def test_a_server_with_wrong_settings_is_refused(fake, folder, section, key, value, message):
    fake.info[section][key] = value
    with pytest.raises(RunError, match=message):
        of(folder, url=fake.url).open()


def test_a_server_without_routes_for_weights_is_refused(fake, folder):
    fake.answers["/server_info?config_format=json"] = 404, {"detail": "Not Found"}
    with pytest.raises(RunError, match="start it with VLLM_SERVER_DEV_MODE=1"):
        of(folder, url=fake.url).open()


def test_a_server_with_another_key_says_so_at_once(fake, folder):
    fake.answers["/server_info?config_format=json"] = 401, {"error": {"message": "Unauthorized"}}
    with pytest.raises(RunError) as error:
        of(folder, url=fake.url).open()
    assert str(error.value) == (
        f"the vLLM server at {fake.url} answers with status 401: Unauthorized: set VLLM_API_KEY to the server's key"
    )


def test_nobody_at_the_address(folder):
    with pytest.raises(RunError, match=r"there is no vLLM server at http://127\.0\.0\.1:9"):
        of(folder, url="http://127.0.0.1:9").open()


@pytest.mark.parametrize(("faults", "stop"), [((500, 503, 0), ()), ((408, 425, 429), ()), ((503, 0, 429), ("never",))])
def test_a_request_that_is_not_answered_is_repeated_with_its_seed(fake, folder, faults, stop, at_once):
    each, sampling = of(folder, url=fake.url, restarts=0), attrs.evolve(RANDOM, stop=stop)
    with closing(each.open()) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = each.generate(engine, sampling)
        del fake.calls[:]
        fake.faults = list(faults)
        drawn = each.generate(engine, sampling)
    np.testing.assert_array_equal(drawn.tokens, expected.tokens)
    assert len(fake.of("/v1/completions")) == 32 + 3
    assert len(fake.of("/health")) == 3, "it was asked how it is at each fault"


def test_a_server_that_is_not_well_is_not_asked_again(fake, folder):
    each = of(folder, url=fake.url, restarts=0)
    with closing(each.open()) as engine:
        fake.answers["/health"] = 503, {}
        fake.faults = [500]
        with pytest.raises(RunError, match="'vllm' is lost: .* it answers with status 500: not now"):
            each.generate(engine, RANDOM)


@pytest.mark.parametrize(("status", "hint"), [(401, "set VLLM_API_KEY"), (403, "set VLLM_API_KEY"), (404, "route")])
def test_a_server_that_refuses_every_request_ends_the_run(fake, folder, status, hint):
    """A restart would change nothing, and neither is it the fault of a completion."""
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        fake.faults = [status]
        with pytest.raises(
            RunError, match=rf"http://.* answers /v1/completions with status {status}: .*{hint}"
        ) as said:
            each.generate(engine, RANDOM)
    assert "\n" not in str(said.value)


def test_a_server_that_fails_is_tried_once_more_in_an_hour(fake, folder, at_once):
    each = of(folder, url=fake.url, connections=1)
    with closing(each.open()) as engine:
        fake.answers["/v1/completions"] = 500, {"error": {"message": "EngineCore encountered an issue."}}
        with (
            pytest.warns(RuntimeWarning, match="restarted"),
            pytest.raises(RunError, match="status 500: EngineCore"),
        ):
            each.generate(engine, RANDOM)
        del fake.answers["/v1/completions"]
        engine.restarts.taken = [then - 3600 for then in engine.restarts.taken]
        engine.host.start(engine.folder)
        fake.faults = [500] * 4
        with pytest.warns(RuntimeWarning, match="restarted"):
            each.generate(engine, RANDOM)


def choice(**changes):
    """Return an answer with one choice, some of which is changed."""
    usual = {"token_ids": [1] * 8, "logprobs": {"token_logprobs": [-1.0] * 8}, "finish_reason": "length"}
    return {"choices": [usual | changes]}


ODD = {
    "a list": ([], "choices: None, not a list of one"),
    "no choices": ({"choices": []}, r"choices: \[\], not a list of one"),
    "two choices": ({"choices": choice()["choices"] * 2}, "choices: .* not a list of one"),
    "a choice that is text": ({"choices": ["x"]}, r"choices: \['x'\], not a list of objects"),
    "no ids": (choice(token_ids=None), "token ids: None, not a list of whole numbers"),
    "a float id": (choice(token_ids=[1.0] * 8), r"token ids: \[1\.0.* not a list of whole numbers"),
    "an id that is true": (choice(token_ids=[True] * 8), r"token ids: \[True.* not a list of whole numbers"),
    "no log-probabilities": (choice(logprobs=None), "log-probabilities: None, not a list of finite numbers"),
    "log-probabilities that are null": (
        choice(logprobs={"token_logprobs": [None] * 8}),
        r"log-probabilities: \[None.* not a list of finite numbers",
    ),
    "a log-probability that is infinite": (
        choice(logprobs={"token_logprobs": [float("-inf")] * 8}),
        r"log-probabilities: \[-inf.* not a list of finite numbers",
    ),
    "too few log-probabilities": (choice(logprobs={"token_logprobs": [-1.0] * 7}), "7 log-probabilities for 8 tokens"),
    "an unknown end": (choice(finish_reason="abort"), "finish_reason: 'abort', not 'stop' or 'length'"),
}
UNFIT = {
    "an id out of range": (choice(token_ids=[1] * 7 + [10**12]), "the token 1000000000000, and the vocabulary has "),
    "a negative id": (choice(token_ids=[-1] + [1] * 7), "the token -1, and the vocabulary has "),
    "too many tokens": (
        choice(token_ids=[1] * 9, logprobs={"token_logprobs": [-1.0] * 9}),
        "returned 9 tokens, 8 were asked for",
    ),
}


STREAMED = ("a float id", "log-probabilities that are null", "an id out of range", "too many tokens")


@pytest.mark.parametrize(
    ("name", "stop"), [*((name, ()) for name in ODD | UNFIT), *((s, ("never",)) for s in STREAMED)]
)
def test_valid_json_that_is_no_answer(name, stop, fake, folder):
    """It is one line; nothing of it is trained on."""
    answer, said = (ODD | UNFIT)[name]
    each = of(folder, url=fake.url, restarts=0)
    with closing(each.open()) as engine:
        fake.answers["/v1/completions"] = 200, answer
        with pytest.raises(RunError, match=said) as raised:
            each.generate(engine, attrs.evolve(RANDOM, stop=stop))
    assert str(raised.value).count("\n") == 0


def test_a_busy_server_is_asked_how_it_is(fake, folder, monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.served.HEALTH_SECONDS", 0.02)
    each = of(folder, url=fake.url, restarts=0)
    with closing(each.open()) as engine:
        fake.draw = lambda prompt, asked: until(lambda: fake.of("/health")) or made_up(prompt, asked)
        each.generate(engine, RANDOM)
        fake.draw = made_up
        fake.patience, fake.answers["/health"] = 60.0, (503, {})
        with pytest.raises(RunError, match="'vllm' is lost: .* it does not answer"):
            each.generate(engine, RANDOM)


def test_a_server_that_says_it_is_well_and_never_answers(fake, folder):
    each = of(folder, url=fake.url, restarts=0, request_seconds=0.3)
    with closing(each.open()) as engine:
        fake.patience = 30.0
        with pytest.raises(RunError, match=r"no answer within 0\.3 s \(rollout\.vllm\.request_seconds\)"):
            each.generate(engine, RANDOM)


def test_a_server_that_is_not_ours_gets_the_key_of_the_environment_alone(fake, folder, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "theirs")
    of(folder, url=fake.url).open().close()
    assert fake.keys == {"Bearer theirs"}


def started(folder, **params):
    return of(folder, command=FAKE, start_seconds=300.0, **params)


def process_of(engine) -> int:
    """Return the id of the server's process."""
    return server_of(engine.host.process)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    end = time.monotonic() + 120
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.slow
@LINUX
def test_our_server_is_started_restarted_and_ended(folder, monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.process.MOMENT_SECONDS", 120.0)
    each = started(folder, sleep=True, flags=("--max-model-len", "64"))
    engine = each.open()
    log = engine.host.process.log
    assert "--logprobs-mode processed_logprobs" in log.read_text()
    assert "--dtype float32" in log.read_text()
    assert "--middleware dovetail_vllm_guard.TokenOnly" in log.read_text()
    for path in ("/health", "/collective_rpc"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(engine.host.client.url + path, data=b"{}" if "rpc" in path else None)
    assert log.read_text().splitlines()[0].endswith("--enable-sleep-mode --max-model-len 64")
    before = each.generate(engine, RANDOM)
    engine.sync(each.other, version=5)
    os.kill(process_of(engine), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match=r"restarted: .*was killed \(SIGKILL\)"):
        again = each.generate(engine, RANDOM)
    np.testing.assert_array_equal(before.tokens, again.tokens)
    assert set(again.versions.flat) == {5}
    assert "version-5" in engine.host.process.log.read_text(), "it serves the newest weights"
    os.kill(process_of(engine), signal.SIGKILL)
    with pytest.raises(RunError, match=r"(?s)'vllm' is lost: .*fake vLLM with") as lost:
        each.generate(engine, RANDOM)
    assert engine.host.process is None
    assert str(lost.value).count("log.txt") == 1
    engine.close()
    engine.close()


def test_a_port_that_is_taken_meanwhile_is_replaced(folder, monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.served.STARTING_SECONDS", 0.5)  # who has taken it says nothing
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]] * 2
        monkeypatch.setattr("dovetail_rollout.launcher.local.free_port", lambda: ports.pop() if ports else free_port())
        with closing(started(folder).open()) as engine:
            assert not ports
            assert engine.host.healthy()
    monkeypatch.setattr("dovetail_rollout.hosted.process.PORT_TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("dovetail_rollout.launcher.local.free_port", lambda: taken.getsockname()[1])
        with pytest.raises(RunError, match="vllm did not start: .*ddress already in use"):
            started(folder).open()


@pytest.mark.slow
@LINUX
def test_the_server_computes_in_the_type_of_the_policy_not_in_that_of_its_weights(folder):
    """float32 masters that are trained in bfloat16 are sampled in bfloat16, and written to the server so."""
    rollout = dovetail.get("rollout", "vllm").bind(folder=str(folder), probe=0.0, command=FAKE, start_seconds=300.0)
    models(folder, QWEN2)
    maker = Pretrained(path=str(folder), random=True, dtype="bfloat16", param_dtype="float32")
    graphdef, trained, frozen = nnx.split(maker.make(Numbers().vocab_size, rngs=nnx.Rngs(0)), nnx.Param, ...)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(trained)} == {"float32"}
    with closing(rollout.open(graphdef, Weights(trained, frozen), Numbers())) as engine:
        assert "--dtype bfloat16" in engine.host.process.log.read_text()


@LINUX
def test_a_closed_engine_leaves_nothing(folder):
    engine = started(folder).open()
    server, log, weights = process_of(engine), engine.host.process.log, engine.handover.root
    engine.close()
    assert gone(server)
    assert not log.exists()
    assert not weights.exists()


@pytest.mark.slow
@LINUX
def test_a_killed_run_leaves_no_server(folder):
    code = (
        "import sys; from pathlib import Path; from tests.rollout.rollout.test_vllm import started, process_of;"
        f" engine = started(Path({str(folder)!r})).open(); print(process_of(engine), flush=True); sys.stdin.read()"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, cwd=root, text=True) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        assert alive(server)
        run.kill()
    assert gone(server)


def test_a_start_that_fails_shows_the_end_of_the_log(folder):
    command = f"{sys.executable} -c \"import sys; print('no such device'); sys.exit(3)\""
    with pytest.raises(RunError, match=r"vllm did not start: .* status 3; the end of (.*):\n(.*\n)*  no such device$"):
        of(folder, command=command).open()


def test_a_start_that_takes_too_long_is_ended(folder):
    with pytest.raises(RunError, match=r"not ready after 0\.5 s: the process still runs"):
        of(folder, command=f'{sys.executable} -c "import time; time.sleep(60)"', start_seconds=0.5).open()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"python": "p", "url": "http://h:1"}, "python and url are given; each says where vLLM is"),
        ({"mode": "in_process", "url": "http://h:1"}, "mode = 'in_process' does not use url"),
        ({"adapter": True}, r"needs rollout\.vllm\.folder"),
        ({"restarts": -1}, "restarts"),
    ],
)
def test_settings_that_exclude_each_other(params, message):
    with pytest.raises(ConfigError, match=message):
        dovetail.get("rollout", "vllm").bind(**params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"python": "/nowhere/python"}, r"rollout\.vllm\.python = '/nowhere/python': there is no such interpreter"),
        ({"command": "nowhere serve"}, r"rollout\.vllm\.command = 'nowhere serve': there is no such program"),
        ({"url": "host:8000"}, "must look like 'http://host:8000'"),
    ],
)
def test_what_is_not_there(params, message):
    with pytest.raises(ConfigError, match=message):
        dovetail.get("rollout", "vllm").bind(**params).check()


def test_not_installed(folder, monkeypatch):
    monkeypatch.delenv("DOVETAIL_VLLM_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs vLLM: pip install .*\[vllm\]. here") as error:
        of(folder).open()
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="needs vLLM"):
        set_up(load(None, [*TINY, "train.rollout=vllm"]), folder)


def test_a_handover_folder_that_does_not_exist(folder):
    with pytest.raises(ConfigError, match="handover = '/nowhere': weights cannot be written there"):
        of(folder, url="http://h:1", handover="/nowhere").open()


def test_a_model_without_a_folder_says_which_setting_it_wants(fake, folder):
    each = of(folder, url=fake.url)
    rollout = dovetail.get("rollout", "vllm").bind(url=fake.url)
    with pytest.raises(ConfigError, match=r"name the folder it comes from \(rollout\.vllm\.folder = None\)"):
        rollout.open(each.graphdef, each.weights, each.tokenizer)


def test_what_is_not_reported_is_refused(fake, folder):
    each = of(folder, url=fake.url)
    with closing(each.open()) as engine:
        for name, value in (("top_k", 1), ("top_p", 0.5), ("min_p", 0.5)):
            with pytest.raises(ConfigError, match=rf"sampling\.logps = 'vocabulary' with sampling\.{name}"):
                each.generate(engine, attrs.evolve(RANDOM, logps="vocabulary", **{name: value}))
        with pytest.raises(ConfigError, match=r"temperature = 0\.001: vLLM samples at 0\.01 instead"):
            each.generate(engine, attrs.evolve(RANDOM, temperature=0.001))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            each.generate(engine, attrs.evolve(RANDOM, logps="vocabulary", top_p=1.0, min_p=0.0))


DORA = ["train.adapter=lora", "adapter.lora.rank=2", "adapter.lora.weight_decomposed=True"]
HANDS_OVER = ["train.rollout=vllm", "rollout.vllm.folder=base", "rollout.vllm.adapter=True"]


def test_a_dora_adapter_by_itself_is_refused_when_the_config_is_read(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"use_dora": true}')
    file = ["train.adapter=peft", f"adapter.peft.path='{tmp_path}'"]
    for adapter, named in (
        (DORA, "adapter.lora.weight_decomposed = True"),
        (file, f"adapter.peft.path = '{tmp_path}'"),
    ):
        with pytest.raises(PlanError) as refused:
            load(None, [*HANDS_OVER, *adapter])
        assert re.fullmatch(
            r"rollout\.vllm\.adapter hands over low-rank changes of matrices alone, and .*"
            + re.escape(named)
            + " makes"
            " more of them; leave adapter out, and the engine gets the weights with the adapter merged",
            str(refused.value),
        )
        assert load(None, [*HANDS_OVER[:2], *adapter]), "merged"
    assert load(None, [*HANDS_OVER, *DORA[:2]]), "a plain one"
    (tmp_path / "adapter_config.json").write_text("{}")
    assert load(None, [*HANDS_OVER, *file])
