"""Loss term `simpo`: the loss, its gradient and its metrics by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.loss_term.test_dpo import GROUPS, LOGPS, MASK, SCORES, softplus

from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.loss_term.simpo import simpo

REWARDS = np.array([0.15, -0.2, 0.1, 0.7 / 3])
"""The means over the tokens of each completion."""
APART = np.array([0.15 - 0.1, 0.7 / 3 - -0.2])
"""r_w - r_l of the pairs (0, 2) and (3, 1)."""


def run(*, logps: Any = LOGPS, **params: Any) -> Any:
    return simpo(logps, SCORES, GROUPS, MASK, **params)


def mean(**options: Any) -> jax.Array:
    return jnp.sum(sequence_mean_token_mean(MASK) * run(**options)[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_mean_over_pairs_is_that_of_the_paper(smoothing: float) -> None:
    h = 2.0 * APART - 0.7
    expected = (1 - smoothing) * softplus(-h) + smoothing * softplus(h)
    found = mean(beta=2.0, gamma=0.7, label_smoothing=smoothing)
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-6)


def test_the_gradient_is_per_token_of_a_completion() -> None:
    """Meng et al. 2024, equation 7: -β·σ(-h)·[∇r_w - ∇r_l], and ∇r is 1/|y| at each token."""
    gradient = jax.grad(lambda x: mean(logps=x, beta=2.0, gamma=0.7))(LOGPS)
    push = 2.0 / (1.0 + np.exp(2.0 * APART - 0.7)) / 2
    lengths = np.array([2, 1, 1, 3])
    np.testing.assert_allclose(gradient[:, 0], np.array([-push[0], push[1], push[0], -push[1]]) / lengths, rtol=1e-5)
    np.testing.assert_array_equal(gradient == 0, ~MASK)


def test_metrics() -> None:
    _, metrics = run(beta=2.0, gamma=9.0)
    np.testing.assert_array_equal(metrics["accuracy"], [1, 1, 1, 1])  # without the margin γ
    np.testing.assert_allclose(metrics["reward_margin"], 2.0 * APART[[0, 1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(metrics["reward"], 2.0 * REWARDS, rtol=1e-6)
    np.testing.assert_array_equal(metrics["paired"], [1, 1, 1, 1])
