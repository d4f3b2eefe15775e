"""Policy loss `gspo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tests.loss.batch import make_batch

from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.policy_loss.gspo import gspo
from dovetail_loss.policy_loss.ppo import ppo

LOGPS = jnp.array([[0.3, -0.1, 9.0], [0.02, 0.0, -0.01]])
OLD = jnp.zeros((2, 3))
MASK = jnp.array([[True, True, False], [True, True, True]])


def test_by_hand() -> None:
    # s_0 = exp((0.3 - 0.1) / 2) = exp(0.1), clipped at 1.05;  s_1 = exp(0.01 / 3), inside
    advantages = jnp.array([[1.0, 1.0, 1.0], [-2.0, -2.0, -2.0]])
    loss, metrics = gspo(LOGPS, OLD, advantages, MASK, epsilon_low=0.05, epsilon_high=0.05)
    inside = 2 * np.exp(0.01 / 3)
    np.testing.assert_allclose(loss, [[-1.05, -1.05, 0.0], [inside, inside, inside]], rtol=1e-6)
    np.testing.assert_array_equal(metrics["clip_fraction"], [[1, 1, 0], [0, 0, 0]])
    np.testing.assert_allclose(metrics["ratio"][0], [np.exp(0.1), np.exp(0.1), 0.0], rtol=1e-6)


def test_a_completion_is_clipped_as_a_whole() -> None:
    advantages = jnp.ones_like(LOGPS)

    def total(logps: jax.Array) -> jax.Array:
        return gspo(logps, OLD, advantages, MASK, epsilon_low=0.05, epsilon_high=0.05)[0].sum()

    gradient = jax.grad(total)(LOGPS)
    assert (gradient[0] == 0).all()
    np.testing.assert_allclose(gradient[1], jnp.full(3, -np.exp(0.01 / 3)), rtol=1e-6)


def test_under_the_sequence_mean_it_is_the_sequence_form_of_the_paper() -> None:
    batch = {name: jnp.asarray(value) for name, value in make_batch().items()}
    mask, old = batch["mask"], batch["old_logps"]
    per_row = batch["scores"]
    advantages = jnp.broadcast_to(per_row[:, None], mask.shape)
    kept = mask.any(-1)
    count = jnp.maximum(mask.sum(-1), 1).astype(jnp.float32)

    def sequence_form(logps: jax.Array) -> jax.Array:
        ratio = jnp.exp(jnp.where(mask, logps - old, 0.0).sum(-1) / count)
        objective = jnp.minimum(ratio * per_row, jnp.clip(ratio, 0.9, 1.1) * per_row)
        return -jnp.sum(jnp.where(kept, objective, 0.0)) / kept.sum().astype(jnp.float32)

    def token_form(logps: jax.Array) -> jax.Array:
        loss, _ = gspo(logps, old, advantages, mask, epsilon_low=0.1, epsilon_high=0.1)
        return jnp.sum(sequence_mean_token_mean(mask) * loss)

    expected = jax.value_and_grad(sequence_form)(batch["logps"])
    actual = jax.value_and_grad(token_form)(batch["logps"])
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-7)


def test_of_one_token_it_is_ppo() -> None:
    logps, old, advantages = jnp.array([[0.3], [-0.2]]), jnp.zeros((2, 1)), jnp.array([[1.0], [-1.0]])
    mask = jnp.ones((2, 1), bool)
    params = {"epsilon_low": 0.1, "epsilon_high": 0.2}

    def total(function: Callable[..., Any], logps: jax.Array) -> jax.Array:
        return function(logps, old, advantages, mask, **params)[0].sum()

    np.testing.assert_allclose(
        gspo(logps, old, advantages, mask, **params)[0], ppo(logps, old, advantages, mask, **params)[0]
    )
    np.testing.assert_allclose(
        jax.grad(lambda x: total(gspo, x))(logps), jax.grad(lambda x: total(ppo, x))(logps), rtol=1e-6
    )


def test_a_token_may_have_an_advantage_of_its_own() -> None:
    advantages = jnp.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0]])

    def total(logps: jax.Array) -> jax.Array:
        return gspo(logps, OLD, advantages, MASK, epsilon_low=0.5, epsilon_high=0.5)[0].sum()

    ratio = np.exp(0.01 / 3)
    np.testing.assert_allclose(jax.grad(total)(LOGPS)[1], [-ratio, 0.0, ratio], rtol=1e-6)
