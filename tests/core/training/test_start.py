"""What a start traces does not grow with the layers of the model, and one that resumes takes no more memory."""

import gc

import jax
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.run.checkpoint import Checkpoints
from dovetail.training.loop import train
from dovetail.training.metrics import memory
from dovetail.training.session import Run
from dovetail_model import transformer

ONCE = ("sft.steps=0", "train.steps=1", "eval.every=None", "train.kl_coef=0.1")
MOST = 6
"""Traces of a block in a start: plan, prompts, decoding, reference, update."""


@pytest.mark.slow
def test_a_block_is_traced_as_often_for_many_layers_as_for_two(tmp_path, monkeypatch):
    """A start of 24 layers took 28 CPU seconds with everything cached, some of it to trace each layer in turn."""
    traced, call = [], transformer.Block.__call__

    def counted(block, *arguments):
        traced.append(block)
        return call(block, *arguments)

    monkeypatch.setattr(transformer.Block, "__call__", counted)
    found = {}
    for layers in (2, 6):
        jax.clear_caches()
        traced.clear()
        train(load(None, [*TINY, *ONCE, f"model.decoder.layers={layers}"]), tmp_path / str(layers))
        found[layers] = len(traced)
    assert found[6] == found[2]
    assert found[6] <= MOST


RESUMES = {
    "critic": ("train.advantage=gae",),
    "masters": ("model.decoder.param_dtype=bfloat16",),
    "adapter": ("train.adapter=lora",),
    "role": ("train.kl_coef=0.1", "roles.reference=ema"),
    "warm start": ("sft.steps=2",),
}


@pytest.mark.parametrize("chosen", RESUMES.values(), ids=RESUMES)
def test_a_run_that_resumes_never_has_two_states_on_the_devices(chosen, tmp_path, monkeypatch):
    def arrays():
        gc.collect()
        return memory()["memory/arrays"] - others

    def noting(method, before):
        def noted(self, *arguments):
            if before:
                found.append(arrays())
            restored = method(self, *arguments)
            if not before:
                found.append(arrays())
            return restored

        return noted

    gc.collect()
    others, found = memory()["memory/arrays"], []
    sizes = ("sft.steps=0", "train.steps=2", "eval.every=None", "run.checkpoint_every=1", "model.decoder.width=64")
    config = load(None, [*TINY, *sizes, *chosen])
    train(config, tmp_path, only_sft=bool(config.sft.steps))
    monkeypatch.setattr(Run, "restore", noting(Run.restore, before=True))
    monkeypatch.setattr(Checkpoints, "restore", noting(Checkpoints.restore, before=False))
    train(config, tmp_path, only_sft=bool(config.sft.steps))
    made, restored = found
    assert restored == pytest.approx(made, rel=0.01)
