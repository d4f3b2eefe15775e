"""Every engine passes `dovetail.testing.rollout`. An engine joins by being listed."""

import functools

import pytest
from flax import nnx

import dovetail
from dovetail.testing.rollout import CHECKS, EngineCase, Numbers
from dovetail_model.decoder import Decoder

TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)

ENGINES = ("vanilla",)


@functools.cache
def case(name):
    models = (TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    return EngineCase.of(dovetail.get("rollout", name).bind(), *models, Numbers())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ENGINES)
def test_conformance(name, check):
    check(case(name))
