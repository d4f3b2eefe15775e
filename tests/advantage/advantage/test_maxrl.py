"""Advantage `maxrl`: hand cases, and the objective whose gradient it estimates."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_advantage.advantage.maxrl import maxrl


def of_one_group(scores: list[float] | np.ndarray) -> np.ndarray:
    size = len(scores)
    return np.asarray(maxrl(jnp.asarray(scores, jnp.float32), jnp.zeros(size, jnp.int32), jnp.ones((size, 1), bool)))[
        :, 0
    ]


def test_by_hand():
    np.testing.assert_allclose(of_one_group([1, 0, 0, 0]), [3, -1, -1, -1])
    np.testing.assert_allclose(of_one_group([0.5, 1.5, 1.0]), [-0.5, 0.5, 0])


@pytest.mark.parametrize("scores", [[0, 0], [-1, 1], [-3, 1, 0]])
def test_a_group_whose_mean_is_not_positive_gets_zero(scores):
    np.testing.assert_array_equal(of_one_group(scores), 0)


def test_it_does_not_depend_on_the_unit_of_reward():
    scores = np.array([0.2, 0.9, 0.4])
    np.testing.assert_allclose(of_one_group(100 * scores), of_one_group(scores), rtol=1e-5)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_its_policy_gradient_is_that_of_a_truncated_log_likelihood(size):
    """A completion succeeds with chance p. Enumerated over all outcomes: d/dp of -∑_{k<n} (1-p)ᵏ/k."""
    p, gradient = 0.3, 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=size):
        scores = np.array(outcome)
        chance = np.prod(np.where(scores == 1, p, 1 - p))
        gradient += chance * np.mean(of_one_group(scores) * np.where(scores == 1, 1 / p, -1 / (1 - p)))
    assert gradient == pytest.approx(sum((1 - p) ** (k - 1) for k in range(1, size)), rel=1e-5)
