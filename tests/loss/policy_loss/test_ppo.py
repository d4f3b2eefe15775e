"""Policy loss `ppo`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_loss.policy_loss.ppo import ppo

TRUE = jnp.ones((1, 4), bool)
RATIOS = jnp.array([[1.5, 1.5, 0.5, 0.5]])
ADVANTAGES = jnp.array([[2.0, -2.0, 2.0, -2.0]])


def loss_of(ratios: jax.Array, advantages: jax.Array, **params: Any) -> jax.Array:
    return ppo(jnp.log(ratios), jnp.zeros_like(ratios), advantages, jnp.ones_like(ratios, bool), **params)[0]


def gradient_of(ratios: jax.Array, advantages: jax.Array, **params: Any) -> jax.Array:
    def total(logps: jax.Array) -> jax.Array:
        return ppo(logps, jnp.zeros_like(logps), advantages, jnp.ones_like(logps, bool), **params)[0].sum()

    return jax.grad(total)(jnp.log(ratios))


def test_by_hand() -> None:
    # A=2, r=1.5: -2·1.2;  A=-2, r=1.5: 2·1.5;  A=2, r=0.5: -2·0.5;  A=-2, r=0.5: 2·0.8
    np.testing.assert_allclose(loss_of(RATIOS, ADVANTAGES), [[-2.4, 3.0, -1.0, 1.6]], rtol=1e-6)


def test_clipped_tokens_have_no_gradient() -> None:
    np.testing.assert_allclose(gradient_of(RATIOS, ADVANTAGES), [[0.0, 3.0, -1.0, 0.0]], rtol=1e-6)


def test_metrics_by_hand() -> None:
    _, metrics = ppo(jnp.log(RATIOS), jnp.zeros((1, 4)), ADVANTAGES, TRUE, clip_c=1.4)
    np.testing.assert_array_equal(metrics["clip_fraction_high"], [[1, 0, 0, 0]])
    np.testing.assert_array_equal(metrics["clip_fraction_low"], [[0, 0, 0, 1]])
    np.testing.assert_array_equal(metrics["clip_fraction"], [[1, 0, 0, 1]])
    np.testing.assert_array_equal(metrics["dual_clip_fraction"], [[0, 1, 0, 0]])
    np.testing.assert_allclose(metrics["ratio"], RATIOS, rtol=1e-6)
    np.testing.assert_allclose(metrics["approx_kl"], -jnp.log(RATIOS), rtol=1e-6)


def test_low_and_high_are_separate_bounds() -> None:
    loss = loss_of(RATIOS, ADVANTAGES, epsilon_low=0.4, epsilon_high=0.1)
    np.testing.assert_allclose(loss, [[-2.2, 3.0, -1.0, 1.2]], rtol=1e-6)


def test_at_ratio_one_it_is_the_policy_gradient() -> None:
    ones = jnp.ones_like(RATIOS)
    np.testing.assert_allclose(gradient_of(ones, ADVANTAGES), -ADVANTAGES, rtol=1e-6)


def test_a_token_exactly_on_the_bound_still_learns() -> None:
    ones = jnp.ones_like(RATIOS)
    gradient = gradient_of(ones, ADVANTAGES, epsilon_low=0.0, epsilon_high=0.0)
    np.testing.assert_allclose(gradient, -ADVANTAGES, rtol=1e-6)


def test_a_wide_range_is_plain_importance_sampling() -> None:
    loss = loss_of(RATIOS, ADVANTAGES, epsilon_low=1.0, epsilon_high=100.0)
    np.testing.assert_allclose(loss, -ADVANTAGES * RATIOS, rtol=1e-6)


def test_the_dual_clip_bounds_what_a_negative_advantage_can_do() -> None:
    ratios, advantages = jnp.array([[10.0, 10.0, 2.0]]), jnp.array([[-1.0, 1.0, -1.0]])
    np.testing.assert_allclose(loss_of(ratios, advantages, clip_c=3.0), [[3.0, -1.2, 2.0]], rtol=1e-6)
    np.testing.assert_allclose(gradient_of(ratios, advantages, clip_c=3.0), [[0.0, 0.0, 2.0]], rtol=1e-6)
    np.testing.assert_allclose(loss_of(ratios, advantages), [[10.0, -1.2, 2.0]], rtol=1e-6)


def test_without_a_dual_clip_there_is_no_metric_of_it() -> None:
    _, metrics = ppo(jnp.log(RATIOS), jnp.zeros((1, 4)), ADVANTAGES, TRUE)
    assert set(metrics) == {"clip_fraction", "clip_fraction_high", "clip_fraction_low", "ratio", "approx_kl"}


@pytest.mark.parametrize("shift", [25.0, -25.0])
def test_beyond_twenty_nats_the_ratio_is_constant(shift: float) -> None:
    def total(logps: jax.Array) -> jax.Array:
        return ppo(logps, jnp.zeros((1, 1)), -jnp.ones((1, 1)), TRUE[:, :1], epsilon_low=1.0)[0].sum()

    value, gradient = jax.value_and_grad(total)(jnp.full((1, 1), shift))
    np.testing.assert_allclose(value, np.exp(np.sign(shift) * 20.0), rtol=1e-6)
    assert gradient == 0
