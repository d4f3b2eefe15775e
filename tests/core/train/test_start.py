"""What a start traces does not grow with the layers of the model."""

import jax
import pytest
from tests.core.train.tiny import TINY

from dovetail.config import load
from dovetail.train.loop import train
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
