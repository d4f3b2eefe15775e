"""The sampler that replaces sgl-jax's own, which needs nothing of it."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.config.settings import Sampling
from dovetail_kit.rollout import expected_logps
from dovetail_rollout.inside.dovetail_sglang_server import cut, draw

VOCAB = 11
SETTINGS = (
    Sampling(top_k=4),
    Sampling(top_p=0.7),
    Sampling(min_p=0.3),
    Sampling(top_k=5, top_p=0.8, min_p=0.1),
    Sampling(),
)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_cuts_are_those_of_every_engine(sampling):
    logits = np.random.default_rng(0).normal(size=(6, VOCAB)).astype(np.float32) * 2
    asked = SimpleNamespace(
        top_ks=jnp.full(6, sampling.top_k or 1 << 30, jnp.int32),
        top_ps=jnp.full(6, sampling.top_p or 1.0, jnp.float32),
        min_ps=jnp.full(6, sampling.min_p or 0.0, jnp.float32),
    )
    logps = jax.nn.log_softmax(cut(jnp.asarray(logits), asked), axis=-1)
    every = np.tile(np.arange(VOCAB), (6, 1))
    expected = expected_logps(np.repeat(logits[:, None], VOCAB, axis=1), every, sampling)
    np.testing.assert_allclose(logps, expected, atol=1e-5)


def test_draws_follow_the_distribution():
    logps = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
    drawn = jax.vmap(draw, in_axes=(None, 0, None))(logps, jnp.arange(20_000), jnp.int32(7))
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, jnp.exp(logps), atol=0.012)


def test_a_draw_is_a_function_of_seed_and_position():
    logps = jnp.zeros(1000)
    assert int(draw(logps, jnp.int32(5), jnp.int32(3))) == int(draw(logps, jnp.int32(5), jnp.int32(3)))
    others = {int(draw(logps, jnp.int32(seed), jnp.int32(at))) for seed in range(5) for at in range(5)}
    assert len(others) > 20
