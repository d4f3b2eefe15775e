"""Every engine passes `dovetail_kit.rollout`. An engine joins by being listed."""

import functools
from typing import Any

import pytest
from flax import nnx
from tests.model.folders import config_of
from tests.rollout.hosted_case import models

import dovetail
from dovetail_kit.rollout import CHECKS, EngineCase, Numbers, checks, episodes
from dovetail_model.model.decoder import Decoder

TINY = Decoder(width=16, layers=2, heads=2, kv_heads=1, ffn=24, init_std=0.4)

ENGINES = ("vanilla",)


@functools.cache
def case(name):
    models = (TINY.make(Numbers().vocab_size, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    return EngineCase.of(dovetail.get("rollout", name).bind(), *models, Numbers())


LONG = {
    "check_batch_does_not_matter",
    "check_cuts_draw_from_the_support",
    "check_long_prompts_after_a_sync",
    *(check.__name__ for check in episodes.CHECKS),
}
CASES = [
    pytest.param(check, id=check.__name__, marks=[pytest.mark.slow] * (check.__name__ in LONG)) for check in CHECKS
]


@pytest.mark.slow
def test_a_mixture_of_experts(tmp_path):
    config = config_of("qwen3_moe") | {"vocab_size": Numbers().vocab_size, "dtype": "float32"}
    rollout: Any = dovetail.get("rollout", "vanilla")
    for settings in ({}, {"slots": 8, "shrink": True}):
        each = EngineCase.of(rollout.bind(**settings), *models(tmp_path, config), Numbers())
        checks.check_the_choices_are_kept(each)


@pytest.mark.parametrize("check", CASES)
@pytest.mark.parametrize("name", ENGINES)
def test_conformance(name, check):
    check(case(name))
