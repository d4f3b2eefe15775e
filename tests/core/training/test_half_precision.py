"""Runs with bfloat16 parameters: they learn as with float32, stop and resume, and export the type unchanged."""

import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.run.files import read_lines
from dovetail.training.loop import train
from dovetail_lab.evaluation.policy import open_policy
from dovetail_model.huggingface.safetensors import open_folder

HALF = ("model.decoder.param_dtype=bfloat16", "model.decoder.dtype=bfloat16")
DORA = (
    "train.adapter=lora",
    "adapter.lora.rank=2",
    "adapter.lora.weight_decomposed=True",
    "adapter.lora.dropout=0.1",
)


def losses(folder, *overrides):
    """Return the losses of a warm start whose steps are at most half the distance between neighbouring numbers."""
    small = ("model.decoder.init_std=0.7", "sft.steps=60", "sft.batch_size=16", "sft.lr=1e-3")
    train(load(None, [*TINY, *small, "sft.lr_schedule=constant", *overrides]), folder, only_sft=True)
    found = [line["sft/loss"] for line in read_lines(folder / "metrics.jsonl")]
    return np.mean(found[:5]), np.mean(found[-5:])


@pytest.mark.slow
def test_bfloat16_parameters_learn_as_float32_ones(tmp_path):
    (first, last), (half_first, half_last) = losses(tmp_path / "full"), losses(tmp_path / "half", HALF[0])
    assert first - last > 4
    assert half_first - half_last == pytest.approx(first - last, rel=0.1)


@pytest.mark.parametrize(
    "adapter",
    [
        pytest.param((), marks=pytest.mark.slow, id="all"),
        # whose factors "dora" has beside its magnitudes
        pytest.param(
            ("train.adapter=lora", "adapter.lora.rank=2"), marks=[pytest.mark.slow, pytest.mark.exhaustive], id="lora"
        ),
        pytest.param(DORA, marks=pytest.mark.slow, id="dora"),
    ],
)
def test_a_run_in_bfloat16_with_a_critic_resumes_and_is_exported(tmp_path, adapter):
    """The run has both phases, scoring, reference and critic; the float32 master weights are in the checkpoint."""
    overrides = [*TINY, *HALF, "train.advantage=gae", "train.kl_coef=0.1", "train.micro_batch_size=4", *adapter]
    config = load(
        None, [*overrides, "train.steps=2", "run.checkpoint_every=1", "run.keep_checkpoints=4", "sft.steps=1"]
    )
    last = train(config, tmp_path)
    assert np.isfinite(last["policy_loss/loss"])
    assert np.isfinite(last["critic/loss"])
    policy = newest(tmp_path)[0]
    assert types(policy["params"]) == ({"float32"} if adapter else {"bfloat16"})
    if not adapter:
        masters = policy["optimiser"]["masters"]
        assert types(masters) == {"float32"}
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y.astype(x.dtype)), policy["params"], masters)
        shutil.rmtree(tmp_path / "checkpoints" / "steps" / "3")
        train(config, tmp_path)
        jax.tree.map(np.testing.assert_array_equal, newest(tmp_path)[0], policy)
    open_policy(config, tmp_path).export(tmp_path / "exported", adapter=False)
    assert {tensor.dtype.name for tensor in open_folder(tmp_path / "exported").values()} == {"bfloat16"}


def types(tree):
    return {leaf.dtype.name for leaf in jax.tree.leaves(tree)}


def newest(folder):
    """Return the state of the newest checkpoint."""
    with ocp.CheckpointManager((folder / "checkpoints" / "steps").absolute()) as manager:
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore())
        return manager.restore(manager.latest_step(), args=arguments)["state"]
