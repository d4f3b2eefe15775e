"""Advantages `grpo`, `dr_grpo` and `rloo`: hand cases and their relations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import random_batch

from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_advantage.advantage.grpo import grpo
from dovetail_advantage.advantage.rloo import rloo

SCORES = jnp.array([1.0, 4.0, 3.0, 7.0, 2.0])
GROUP_IDS = jnp.array([9, 2, 9, 2, 9])
"""Group 9 holds 1, 3, 2: mean 2, deviation 1. Group 2 holds 4, 7: mean 5.5, deviation 3/√2."""
MASK = jnp.array([[True, True], [True, False], [False, True], [True, True], [True, False]])


def column(advantages: jax.Array) -> np.ndarray:
    """Return the advantage of each row, which must be the same at each policy token."""
    return np.asarray(advantages)[np.arange(len(MASK)), np.argmax(MASK, axis=1)]


def test_grpo_by_hand():
    advantages = grpo(SCORES, GROUP_IDS, MASK, epsilon=0.5)
    pair = 1.5 / (3 / np.sqrt(2) + 0.5)
    np.testing.assert_allclose(column(advantages), [-1 / 1.5, -pair, 1 / 1.5, pair, 0], rtol=1e-6)
    np.testing.assert_array_equal(advantages != 0, MASK & jnp.array([[True], [True], [True], [True], [False]]))


def test_grpo_over_the_batch_by_hand():
    # Scores 1, 4, 3, 7, 2: mean 3.4, squared deviations 21.2, variance 5.3.
    advantages = grpo(SCORES, GROUP_IDS, MASK, scale="batch", epsilon=0.0)
    np.testing.assert_allclose(column(advantages), np.array([-1, -1.5, 1, 1.5, 0]) / np.sqrt(5.3), rtol=1e-6)


def test_dr_grpo_by_hand():
    np.testing.assert_allclose(column(dr_grpo(SCORES, GROUP_IDS, MASK)), [-1, -1.5, 1, 1.5, 0])


def test_rloo_by_hand():
    expected = [1 - (3 + 2) / 2, 4 - 7, 3 - (1 + 2) / 2, 7 - 4, 2 - (1 + 3) / 2]
    np.testing.assert_allclose(column(rloo(SCORES, GROUP_IDS, MASK)), expected, rtol=1e-6)


def test_dr_grpo_is_grpo_without_scale():
    batch = random_batch()
    fields: dict[str, Any] = {name: jnp.asarray(batch[name]) for name in ("scores", "group_ids", "mask")}
    np.testing.assert_array_equal(dr_grpo(**fields), grpo(**fields, scale="none"))


def test_rloo_is_dr_grpo_times_n_over_n_minus_one():
    batch = random_batch()
    fields: dict[str, Any] = {name: jnp.asarray(batch[name]) for name in ("scores", "group_ids", "mask")}
    _, inverse, sizes = np.unique(batch["group_ids"], return_inverse=True, return_counts=True)
    n = sizes[inverse][:, None]
    np.testing.assert_allclose(rloo(**fields), np.asarray(dr_grpo(**fields)) * n / (n - 1), rtol=1e-6)


def test_grpo_scaled_by_group_does_not_depend_on_the_unit_of_reward():
    np.testing.assert_allclose(
        grpo(100 * SCORES, GROUP_IDS, MASK, epsilon=0.0), grpo(SCORES, GROUP_IDS, MASK, epsilon=0.0), rtol=1e-6
    )


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_equal_scores_give_zero_without_epsilon_too(scale):
    equal = grpo(jnp.full(5, 0.7), GROUP_IDS, MASK, scale=scale, epsilon=0.0)
    np.testing.assert_array_equal(equal, 0)


def test_scores_far_from_zero_keep_their_digits():
    offset = jnp.array([1000000.375, 999998.8125, 1000000.0, 1000000.6875])
    advantages = dr_grpo(offset, jnp.zeros(4, jnp.int32), jnp.ones((4, 1), bool))
    np.testing.assert_array_equal(advantages[:, 0], np.array([0.375, -1.1875, 0, 0.6875]) + 0.03125)
