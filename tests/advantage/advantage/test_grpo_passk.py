"""Advantage `grpo_passk`: hand cases, ties, and the objective whose gradient it estimates."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_advantage.advantage.grpo_passk import grpo_passk

SCORES = jnp.array([1.0, 4.0, 3.0, 7.0, 2.0])
GROUP_IDS = jnp.array([9, 2, 9, 2, 9])
"""Group 9 holds 1, 3, 2: deviation 1. Group 2 holds 4, 7: deviation 3/√2."""
MASK = jnp.ones((5, 1), bool)


def test_by_hand():
    advantages = grpo_passk(SCORES, GROUP_IDS, MASK, epsilon=0.5)
    np.testing.assert_allclose(advantages[:, 0], [0, 0, 1 / 1.5, 3 / (3 / np.sqrt(2) + 0.5), 0], rtol=1e-6)
    np.testing.assert_allclose(grpo_passk(SCORES, GROUP_IDS, MASK, scale="none")[:, 0], [0, 0, 1, 3, 0])


def test_two_best_completions_are_dispensable():
    advantages = grpo_passk(jnp.array([2.0, 5.0, 5.0]), jnp.zeros(3, jnp.int32), jnp.ones((3, 1), bool))
    np.testing.assert_array_equal(advantages, 0)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_without_scale_it_is_the_policy_gradient_of_pass_at_k(size):
    """A completion succeeds with chance p. The expected sum of A·∇log π is d/dp of 1-(1-p)ᵏ = k·(1-p)ᵏ⁻¹."""
    p, gradient = 0.3, 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=size):
        scores = np.array(outcome, np.float32)
        advantages = grpo_passk(
            jnp.asarray(scores), jnp.zeros(size, jnp.int32), jnp.ones((size, 1), bool), scale="none"
        )
        chance = np.prod(np.where(scores == 1, p, 1 - p))
        gradient += chance * np.sum(np.asarray(advantages)[:, 0] * np.where(scores == 1, 1 / p, -1 / (1 - p)))
    assert gradient == pytest.approx(size * (1 - p) ** (size - 1), rel=1e-5)
