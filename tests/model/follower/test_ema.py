"""Follower `ema`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail_model.follower.ema import Ema

WEIGHTS = {"a": jnp.array([1.0, 2.0]), "b": {"c": jnp.array([[4.0]])}}
POLICY = {"a": jnp.array([3.0, -2.0]), "b": {"c": jnp.array([[0.0]])}}


def test_by_hand() -> None:
    moved = Ema(decay=0.75)(WEIGHTS, POLICY)
    np.testing.assert_allclose(moved["a"], [1.5, 1.0])
    np.testing.assert_allclose(moved["b"]["c"], [[3.0]])


def test_after_k_steps_towards_a_policy_that_stands_still() -> None:
    """w_k = θ + d^k·(w_0 - θ)."""
    weights = WEIGHTS
    for _ in range(5):
        weights = Ema(decay=0.9)(weights, POLICY)
    expected = jax.tree.map(lambda w, theta: theta + 0.9**5 * (w - theta), WEIGHTS, POLICY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), weights, expected)


def test_the_ends_stay_and_copy() -> None:
    jax.tree.map(np.testing.assert_array_equal, Ema(decay=1.0)(WEIGHTS, POLICY), WEIGHTS)
    jax.tree.map(np.testing.assert_array_equal, Ema(decay=0.0)(WEIGHTS, POLICY), POLICY)


def test_equal_weights_stay_equal_bit_for_bit() -> None:
    odd = jnp.array([0.1, 1 / 3, 1e-20, 7e8])
    np.testing.assert_array_equal(Ema(decay=0.99)(odd, odd), odd)


def test_types_stay_and_the_decay_is_traced() -> None:
    half, theta = jnp.ones(2, jnp.bfloat16), jnp.full(2, 2.0, jnp.bfloat16)
    moved = jax.jit(lambda decay: Ema(decay=decay)(half, theta))(jnp.float32(0.5))
    assert moved.dtype == jnp.bfloat16
    np.testing.assert_allclose(moved.astype(jnp.float32), [1.5, 1.5])


@pytest.mark.parametrize("decay", [-0.1, 1.1])
def test_a_decay_outside_zero_and_one_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match="decay"):
        Ema(decay=decay)
