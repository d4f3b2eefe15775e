"""Value loss `ppo`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.value_loss.mse import mse
from dovetail_loss.value_loss.ppo import ppo

OLD = jnp.zeros((1, 4))
VALUES = jnp.array([[0.2, 2.0, 2.0, -3.0]])
RETURNS = jnp.array([[1.0, 1.5, 5.0, 0.0]])
MASK = jnp.array([[True, True, True, False]])


def test_by_hand() -> None:
    # inside the range: ½·0.8²; moved past the target: ½·(0.5 - 1.5)²; still short of it: the clipped error is the larger
    loss, metrics = ppo(VALUES, OLD, RETURNS, MASK)
    np.testing.assert_allclose(loss, [[0.32, 0.5, 0.5 * 4.5**2, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(metrics["clip_fraction"], [[0, 1, 1, 0]])


def test_a_clipped_value_has_no_gradient() -> None:
    gradient = jax.grad(lambda values: ppo(values, OLD, RETURNS, MASK)[0].sum())(VALUES)
    np.testing.assert_allclose(gradient, [[-0.8, 0.0, 0.0, 0.0]], rtol=1e-6)


def test_a_wide_range_is_the_plain_squared_error() -> None:
    np.testing.assert_allclose(ppo(VALUES, OLD, RETURNS, MASK, clip_value=1e9)[0], mse(VALUES, RETURNS, MASK))


def test_where_the_critic_moved_away_from_the_target_the_plain_error_counts() -> None:
    value, target = jnp.array([[-2.0]]), jnp.array([[1.0]])
    loss, metrics = ppo(value, jnp.zeros((1, 1)), target, jnp.array([[True]]))
    np.testing.assert_allclose(loss, [[4.5]])
    assert metrics["clip_fraction"] == 0
