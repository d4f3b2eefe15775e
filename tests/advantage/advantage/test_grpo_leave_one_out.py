"""Advantage `grpo_leave_one_out`: the formula as a plain loop, and the cases without a division."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import random_batch

from dovetail_advantage.advantage.grpo_leave_one_out import grpo_leave_one_out
from dovetail_advantage.advantage.rloo import rloo


def loop(scores: np.ndarray, group_ids: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the advantage of each completion, computed from the list of the other completions."""
    advantages = np.zeros(len(scores))
    for row, score in enumerate(scores):
        others = np.delete(scores, row)[np.delete(group_ids, row) == group_ids[row]]
        spread = others.std(ddof=1) if len(others) > 1 else 0.0
        if len(others):
            advantages[row] = (score - others.mean()) / (spread + epsilon if spread > 0 else 1.0)
    return advantages


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_it_equals_the_loop(epsilon):
    with jax.enable_x64(True):
        batch = random_batch(group_ids=(1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4))
        scores = batch["scores"].astype(np.float64)
        advantages = grpo_leave_one_out(
            jnp.asarray(scores), jnp.asarray(batch["group_ids"]), jnp.ones((11, 1), bool), epsilon=epsilon
        )
        np.testing.assert_allclose(advantages[:, 0], loop(scores, batch["group_ids"], epsilon), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.7, -0.1, 1e6 + 0.3])
@pytest.mark.parametrize("size", [3, 7])
def test_a_lone_success_is_not_blown_up(value, size):
    scores = jnp.full(size, value).at[2].add(1.0)
    advantages = grpo_leave_one_out(scores, jnp.zeros(size, jnp.int32), jnp.ones((size, 1), bool))[:, 0]
    np.testing.assert_allclose(advantages[2], scores[2] - scores[0], rtol=1e-6)
    assert (np.abs(advantages) < 2).all()


def test_a_group_of_two_is_rloo():
    scores, ids, mask = jnp.array([1.0, 4.0]), jnp.array([5, 5]), jnp.ones((2, 1), bool)
    np.testing.assert_array_equal(grpo_leave_one_out(scores, ids, mask), rloo(scores, ids, mask))
