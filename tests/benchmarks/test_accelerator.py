"""The benchmark of an accelerator counts operations as XLA does, keeps what it has, and says what it left out."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail_memory.cost import estimate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIZES = tuple(
    f"model.decoder.{name}={size}"
    for name, size in {"width": 256, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512}.items()
)


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_operations_agree_with_what_xla_counts(module):
    config = load(None, [*TINY, *SIZES, "train.max_prompt_tokens=32", "sampling.max_tokens=32"])
    cost = estimate(config)
    work = module("flops").Work.of(config, _vocabulary(config))
    assert work.forward == pytest.approx(cost.flops["rollout"], rel=0.1)
    assert work.update == pytest.approx(cost.flops["update"], rel=0.15)


def test_the_operations_of_attention_agree_with_what_xla_counts(module):
    """With 512 tokens the scores take most operations. Dense attention also computes the pairs that are masked."""
    config = load(None, [*TINY, *SIZES, "model.decoder.attention=dense", "model.decoder.ffn=32"])
    length, vocabulary = 512, _vocabulary(config)
    work = module("flops").Work.of(config, vocabulary)
    model = config.choice("train.model").bind().make(vocabulary, rngs=nnx.Rngs(0))
    tokens = jnp.zeros((1, length), jnp.int32)
    graphdef, weights = nnx.split(model)
    lowered = jax.jit(lambda w: nnx.merge(graphdef, w)(tokens, tokens == 0)[0]).lower(weights)
    products = work.operations(length, 0, 0)
    counted = lowered.cost_analysis()["flops"]
    assert counted > 1.8 * products
    assert work.operations(length, 0, length**2) == pytest.approx(counted, rel=0.1)


def test_what_decoding_must_read(module):
    work = module("flops").Work(
        width=8, layers=3, heads=2, kv_heads=1, head_dim=4, ffn=16, vocabulary=10,
        prompts=2, group=4, prompt=5, answer=2, itemsize=2,
    )  # fmt: skip
    weights = 3 * (8 * 8 * 2 + 2 * 8 * 4 + 3 * 8 * 16) + 8 * 10
    cached = 3 * 2 * 4 * (2 * (2 * 5) + 8 * (1 + 2))  # keys and values: prompts at both tokens, completions so far
    assert work.read == 2 * (2 * weights + cached)


def test_the_shares_are_of_what_was_measured(module):
    finding = {"of": "x", "what": "decode", "operations": 3e12, "seconds": 2.0, "bytes_read": 5e9, "tokens": 100}
    found = module("accelerator").printed(finding, rate=3e12, bandwidth=1e10)
    assert found["share_of_matrix_rate"] == 0.5
    assert found["bandwidth_bound_tokens_per_s"] == 200
    assert found["times_the_bound"] == 4


def test_without_time_everything_is_said_to_be_skipped(module, tmp_path, capsys):
    assert module("accelerator").main(["--shapes", "tiny", "--minutes=0", f"--out={tmp_path / 'found'}"]) == 0
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert [(each["of"], each["what"]) for each in found] == [("machine", "skipped"), ("tiny", "skipped")]
    assert "0 minutes were over before it" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tiny_shape_and_a_population_on_a_cpu(tmp_path):
    out = tmp_path / "found.jsonl"
    command = [sys.executable, str(BENCHMARKS / "accelerator.py"), "--shapes", "tiny", "population", "--calls=1"]
    command.append(f"--out={out}")
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    found = [json.loads(line) for line in out.read_text().splitlines()]
    device, *rest = found
    assert device["note"] == "on cpu: no accelerator was measured"
    assert [each["what"] for each in rest] == [
        *("bfloat16", "float32", "bandwidth", "step"),
        *("decode", "scoring", "update", "memory"),
        *("decode", "update") * 2,
    ]
    by_name = {each["what"]: each for each in rest if each["of"] != "population"}
    assert {"tokens_per_s", "bandwidth_bound_tokens_per_s", "times_the_bound"} <= by_name["decode"].keys()
    assert by_name["update"]["operations"] == 3 * by_name["scoring"]["operations"]
    assert by_name["update"]["share_of_matrix_rate"] > 0
    assert by_name["memory"]["planned_gib"] > 0
    assert printed.count("\n") == len(found)


def _vocabulary(config):
    task = config.choice("train.task").bind()
    return config.choice("train.tokenizer").bind().make(task.corpus()).vocab_size
