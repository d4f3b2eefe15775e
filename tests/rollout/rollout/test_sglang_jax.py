"""The sgl-jax engine: its client, and the real one where an environment with sgl-jax is named."""

import os
import socket
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest
from tests.rollout.hosted_case import case, qwen2

import dovetail
from dovetail.errors import ConfigError, RunError
from dovetail_kit.rollout import CHECKS, check_close
from dovetail_kit.rollout.checks import GREEDY, RANDOM
from dovetail_rollout.hosted.engine import HostedEngine
from dovetail_rollout.hosted.process import free_port

FAKE = Path(__file__).parents[1] / "fake_sglang.py"


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr("dovetail_rollout.rollout.sglang_jax.SCRIPT", FAKE)


def of(folder, **params):
    return case("sglang_jax", folder, qwen2(width=16, head_dim=8), python=sys.executable, probe=0.0, **params)


def test_what_is_asked(fake, tmp_path, monkeypatch):
    """The fake completes with the settings that it was given, as numbers, which are no ids of the model."""
    monkeypatch.setattr(HostedEngine, "_check", lambda *_: None)
    each = of(tmp_path)
    with closing(each.open()) as engine:
        drawn = each.generate(engine, attrs.evolve(RANDOM, top_k=4, top_p=0.75))
        assert drawn.tokens[0].tolist() == [8, 80, 4, 75, 0, 1, 0, 0], "tokens, temperature, top-k, top-p, min-p, EOS"
        assert each.generate(engine, attrs.evolve(RANDOM, top_k=1)).logps.tolist() == [[0.0] * 8] * 32
        assert each.generate(engine, GREEDY).logps[0, 0] == -1
        engine.sync(each.other, version=2)
        assert "load" in engine.host.process.log.read_text()


def test_a_failure_shows_the_end_of_the_log(fake, tmp_path):
    each = of(tmp_path, options={"fail": True}, restarts=0)
    with (
        closing(each.open()) as engine,
        pytest.raises(RunError, match="(?s)is lost: sgl-jax: on purpose; .*fake sgl-jax"),
    ):
        each.generate(engine, RANDOM)


@pytest.mark.parametrize(
    ("unwell", "seconds", "said"),
    [
        (True, 60.0, "it does not answer"),
        (False, 0.5, r"no answer within 0\.5 s \(rollout\.sglang_jax\.request_seconds\)"),
    ],
)
def test_a_process_that_hangs_is_lost(fake, tmp_path, monkeypatch, unwell, seconds, said):
    monkeypatch.setattr("dovetail_rollout.hosted.served.HEALTH_SECONDS", 0.05)
    options = {"patience": 60.0, "unwell": unwell}
    each = of(tmp_path, options=options, restarts=0, request_seconds=seconds)
    with closing(each.open()) as engine, pytest.raises(RunError, match=f"is lost: sgl-jax: {said}"):
        each.generate(engine, RANDOM)


def test_a_port_that_is_taken_meanwhile_is_replaced(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("dovetail_rollout.hosted.served.STARTING_SECONDS", 0.5)  # who has taken it says nothing
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr("dovetail_rollout.launcher.local.free_port", lambda: ports.pop() if ports else free_port())
        with closing(of(tmp_path).open()) as engine:
            assert not ports
            assert engine.host.healthy()


def test_not_installed(monkeypatch):
    monkeypatch.delenv("DOVETAIL_SGLANG_PYTHON", raising=False)
    with pytest.raises(ConfigError, match="needs sgl-jax, from its repository and with Python 3.12"):
        dovetail.get("rollout", "sglang_jax").bind().check()


CPU = {
    "device": "cpu",
    "attention_backend": "native",
    "page_size": 1,
    "max_total_tokens": 4096,
    "max_prefill_tokens": 1024,
    "max_running_requests": 32,
    "chunked_prefill_size": -1,
    "precompile_token_paddings": [64, 256],
    "precompile_bs_paddings": [32],
    "disable_precompile": True,
    "disable_radix_cache": True,
    "context_length": 256,
}


@pytest.mark.slow
@pytest.mark.skipif("DOVETAIL_SGLANG_PYTHON" not in os.environ, reason="DOVETAIL_SGLANG_PYTHON names no interpreter")
def test_conformance(tmp_path):
    each = case("sglang_jax", tmp_path, qwen2(width=256, head_dim=128, std=0.06), options=CPU)
    engine = each.open()
    for check in CHECKS:
        if check is not check_close:
            check(each.sharing(engine))
    check_close(attrs.evolve(each, open=lambda: engine))
