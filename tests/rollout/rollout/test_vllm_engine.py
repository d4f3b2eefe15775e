"""The real vLLM. `make test-vllm` makes an environment for it; elsewhere, name an interpreter:

DOVETAIL_VLLM_PYTHON=/path/to/venv/bin/python pytest -m slow tests/rollout/test_vllm_engine.py
"""

import importlib.util
import json
import os
import re
import signal
import time
import urllib.request
from contextlib import closing

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.core.training.tiny import TINY
from tests.rollout.hosted_case import case, models, qwen2
from tests.rollout.rollout.test_vllm import process_of

import dovetail
from dovetail.config import load
from dovetail.host.episodes import Rounds
from dovetail.training.loop import train
from dovetail_kit.rollout import CHECKS, EngineCase, Numbers, check_close, expected_logps
from dovetail_kit.rollout.case import make_keys
from dovetail_kit.rollout.checks import RANDOM, check_long_prompts_after_a_sync, check_reported_logps, check_sync
from dovetail_kit.rollout.episodes import TURNS
from dovetail_model.model.pretrained import Pretrained

HERE = importlib.util.find_spec("vllm") is not None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not HERE and "DOVETAIL_VLLM_PYTHON" not in os.environ,
        reason="vLLM is not installed here, and DOVETAIL_VLLM_PYTHON names no interpreter",
    ),
]
SMALL = ("--max-model-len", "256", "--enforce-eager")
QWEN2 = qwen2(width=64, head_dim=32)
GEMMA3 = {
    "model_type": "gemma3",
    "torch_dtype": "float32",
    "text_config": {
        "vocab_size": Numbers().vocab_size,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "query_pre_attn_scalar": 20,
        "sliding_window": 8,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "initializer_range": 0.2,
    },
    "vision_config": {},
}
ALL_BUT_CLOSE = [check for check in CHECKS if check is not check_close]


@pytest.fixture(autouse=True, scope="module")
def little_memory():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield


@pytest.fixture(scope="module")
def opened(tmp_path_factory, little_memory):
    """The case of a server and its engine."""
    each = case("vllm", tmp_path_factory.mktemp("qwen2"), QWEN2, flags=SMALL)
    with closing(each.open()) as engine:
        yield each, engine


@pytest.mark.parametrize("check", ALL_BUT_CLOSE, ids=lambda check: check.__name__)
def test_conformance_of_a_server(check, opened):
    each, engine = opened
    check(each.sharing(engine))


def prefix_tokens(engine):
    """Return how many tokens the server has looked up in its prefix cache so far, and how many it found there."""
    client = engine.host.client
    asked = urllib.request.Request(f"{client.url}/metrics", headers={"Authorization": f"Bearer {client.key}"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        lines = answer.read().decode().splitlines()
    counts = [re.search(rf"^vllm:prefix_cache_{name}_total{{.*}} (\S+)", "\n".join(lines), re.M) for name in COUNTED]
    return np.array([float(count[1]) for count in counts])


COUNTED = ("queries", "hits")


def test_within_an_episode_the_prefix_cache_is_kept_and_with_other_weights_it_is_not(opened):
    """A prompt of 200 tokens fills one block of 128, and the second block is full in the second turn of an episode."""
    each, engine = opened
    prompt = np.random.default_rng(0).integers(2, 13, (1, 200))
    rounds = Rounds(engine=engine, pad_id=0, max_turn_tokens=6)
    sampling = attrs.evolve(RANDOM, max_tokens=54)
    for version, weights in enumerate((each.weights, each.other, each.weights)):
        engine.sync(weights, version)
        found = [prefix_tokens(engine)]

        def then(rows, turns, finish, found=found):
            found.append(prefix_tokens(engine))
            return [[5, 4, 3, 2]] * len(rows) if len(found) <= TURNS else [None] * len(rows)

        tape, _ = rounds(prompt, prompt > 0, make_keys(version, 1, 1), sampling, then)
        (_, first), *later = np.diff(found, axis=0)
        assert first == 0, "the first turn after a sync found keys and values of other weights"
        assert len(later) == TURNS - 1
        assert all(hits >= 128 for _, hits in later), later
        assert far_off(each, weights, prompt, tape) < 1e-4


def test_prompts_that_are_computed_in_pieces_draw_what_they_draw_as_a_whole(opened, tmp_path):
    """vLLM samples a token after each piece and drops it, and on a CPU it used to end at that."""
    each, engine = opened
    engine.sync(each.weights, 0)
    prompt, keys = np.random.default_rng(0).integers(2, 13, (4, 150)), make_keys(0, 4, 2)
    sampling = attrs.evolve(RANDOM, max_tokens=20)
    whole = engine.generate(prompt, prompt > 0, keys, sampling)
    in_pieces = case("vllm", tmp_path, QWEN2, probe=0.0, flags=(*SMALL, "--max-num-batched-tokens", "32"))
    with closing(in_pieces.open()) as other:
        drawn = other.generate(prompt, prompt > 0, keys, sampling)
    np.testing.assert_array_equal(drawn.tokens, whole.tokens)


def far_off(each, weights, prompt, tape):
    """Return how far reported log-probabilities are from those of the model, which reads each episode at once."""
    rows = len(tape.tokens) // len(prompt)
    whole = np.concatenate([np.repeat(prompt, rows, axis=0), tape.tokens], axis=1)
    read = np.concatenate([np.ones((len(tape.tokens), prompt.shape[1]), bool), tape.mask | tape.observed], axis=1)
    model = nnx.merge(each.graphdef, *weights)
    logits = np.asarray(model.logits(model(whole, read)[0]))[:, prompt.shape[1] - 1 : -1]
    return np.nanmax(np.abs(np.where(tape.mask, tape.logps - expected_logps(logits, tape.tokens, RANDOM), 0)))


def as_soon_as_some_tokens_are_there(host, *weights):
    """Newer weights that come one after another, each when those before have sampled something.

    What arrives in the first moment may still be of the streams that were hung up on.
    """
    waiting, since = list(weights), [time.monotonic()]

    def newer():
        if not waiting or host.answered < since[0] + 0.5:
            return None
        since[0] = time.monotonic()
        return waiting.pop(0)

    return newer


def test_every_token_in_flight_is_of_the_weights_that_it_names(opened):
    each, engine = opened
    engine.sync(each.weights, 0)
    endless, prompt = attrs.evolve(engine, eos_ids=()), np.random.default_rng(0).integers(2, 13, (64, 20))
    drawn = endless.generate(
        prompt,
        np.ones_like(prompt, bool),
        make_keys(0, 64, 2),
        attrs.evolve(RANDOM, max_tokens=200),
        newer=as_soon_as_some_tokens_are_there(engine.host, (each.other, 1), (each.weights, 2)),
    )
    assert set(drawn.versions[drawn.mask]) == {0, 1, 2}
    assert max(len(set(row)) for row in drawn.versions) > 1, "no completion was in the middle"
    for version, weights in enumerate((each.weights, each.other, each.weights)):
        own = attrs.evolve(drawn, logps=np.where(drawn.versions == version, drawn.logps, np.nan))
        assert far_off(each, weights, prompt, own) < 1e-4


def test_a_server_that_dies_is_started_again_with_the_newest_weights(opened):
    each, engine = opened
    engine.sync(each.other, 4)
    before = each.generate(engine, RANDOM)
    os.kill(process_of(engine), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="restarted"):
        after = each.generate(engine, RANDOM)
    np.testing.assert_array_equal(before.tokens, after.tokens)
    assert set(after.versions.flat) == {4}


def adapted(folder, seed):
    """Return the folder's model with a random adapter."""
    adapter = dovetail.get("adapter", "lora").bind(rank=4, alpha=8.0)
    model = adapter.apply(Pretrained(path=str(folder)).make(13, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(seed))
    key = jax.random.key(seed)

    def random(leaf):
        return 0.3 * jax.random.normal(jax.random.fold_in(key, leaf.size), leaf.shape)

    nnx.update(model, jax.tree.map(random, nnx.state(model, nnx.LoRAParam)))
    return model


def check_adapter(folder, **params):
    """Serve a base model, and hand over adapters."""
    base, _ = models(folder, QWEN2)
    Pretrained(path=str(folder)).export(base, folder, adapter=False)
    rollout = dovetail.get("rollout", "vllm").bind(folder=str(folder), adapter=True, flags=SMALL, **params)
    each = EngineCase.of(rollout, adapted(folder, 1), adapted(folder, 2), Numbers())
    with closing(each.open()) as engine:
        check_reported_logps(each.sharing(engine))
        check_sync(each.sharing(engine))


def test_the_text_tower_of_gemma_3(tmp_path):
    each = case("vllm", tmp_path, GEMMA3, flags=SMALL)
    with closing(each.open()) as engine:
        check_reported_logps(each.sharing(engine))
        check_sync(each.sharing(engine))
        check_long_prompts_after_a_sync(each.sharing(engine))


def test_an_adapter_alone(tmp_path):
    check_adapter(tmp_path)


@pytest.mark.skipif(not HERE, reason="vLLM is not installed in this environment")
@pytest.mark.filterwarnings("ignore")
def test_in_this_process(tmp_path):
    """One engine after another, as a process can hold one only."""
    each = case("vllm", tmp_path / "whole", QWEN2, mode="in_process", flags=SMALL)
    engine = each.open()
    for check in ALL_BUT_CLOSE:
        check(each.sharing(engine))
    check_close(attrs.evolve(each, open=lambda: engine))
    check_adapter(tmp_path / "adapter", mode="in_process")


LEARNS = (
    *TINY,
    "model.decoder.width=64",
    "model.decoder.head_dim=32",
    "model.decoder.ffn=96",
    "train.rewards=['match_format_approximately']",
    "eval.success=match_format_approximately",
    "train.prompts=8",
    "train.group_size=8",
    "train.steps=30",
    "train.lr=3e-3",
    "sft.steps=30",
    "sft.lr=3e-3",
    "sft.batch_size=16",
    "sampling.max_tokens=12",
    "eval.every=30",
    "train.rollout=vllm",
    f"rollout.vllm.flags={('--max-model-len', '64', '--enforce-eager')!r}",
)


def test_grpo_learns(tmp_path):
    train(load(None, LEARNS), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["phase"] == "rl" and "reward/mean" in line]
    rewards = [line["reward/mean"] for line in steps]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.3
    assert 0 < max(line["mismatch/abs_max"] for line in steps) < 1e-3
    assert all(line["mismatch/effective_sample_size"] > 0.999 for line in steps)
