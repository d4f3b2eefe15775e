"""Policy loss `gspo_turn`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.policy_loss.gspo import gspo
from dovetail_loss.policy_loss.gspo_turn import gspo_turn

LOGPS = jnp.array([[0.3, -0.1, 9.0, -0.02, 0.0, 0.02]])
OLD, ONES = jnp.zeros((1, 6)), jnp.ones((1, 6))
MASK = jnp.array([[1, 1, 0, 1, 1, 1]]) == 1
TURNS = jnp.array([[0, 0, 0, 1, 1, 2]])


def test_by_hand() -> None:
    # s = e^0.1 in turn 0, clipped at 1.05;  e^-0.01 in turn 1 and e^0.02 in turn 2, inside
    loss, metrics = gspo_turn(LOGPS, OLD, ONES, TURNS, MASK, epsilon_low=0.05, epsilon_high=0.05)
    ratios = np.exp([0.1, 0.1, 0, -0.01, -0.01, 0.02]) * np.asarray(MASK[0])
    np.testing.assert_allclose(metrics["ratio"][0], ratios, rtol=1e-6)
    np.testing.assert_allclose(loss[0], -np.minimum(ratios, 1.05), rtol=1e-6)
    np.testing.assert_array_equal(metrics["clip_fraction"], [[1, 1, 0, 0, 0, 0]])


def test_turns_are_clipped_one_by_one() -> None:
    def total(logps: jax.Array) -> jax.Array:
        return gspo_turn(logps, OLD, ONES, TURNS, MASK, epsilon_low=0.05, epsilon_high=0.05)[0].sum()

    gradient = jax.grad(total)(LOGPS)
    np.testing.assert_allclose(gradient, [[0, 0, 0, -np.exp(-0.01), -np.exp(-0.01), -np.exp(0.02)]], rtol=1e-6)


def test_an_episode_of_one_turn_is_a_completion_of_gspo() -> None:
    found, metrics = gspo_turn(LOGPS, OLD, ONES, jnp.zeros_like(TURNS), MASK)
    expected, theirs = gspo(LOGPS, OLD, ONES, MASK)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for name, value in theirs.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)
