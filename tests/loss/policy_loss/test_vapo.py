"""Policy loss `vapo`, with the field `positive_weights`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, value

import dovetail
from dovetail_loss.field.positive_weights import positive_weights

MASK = np.array([[True, True, False], [True, True, True], [True, False, False]])
SCORES = jnp.array([1.0, -1.0, 0.5])
LOGPS = np.array([[-1.0, -2.0, 9.0], [-0.5, -0.5, -0.5], [-3.0, 9.0, 9.0]])


def test_under_the_token_mean_it_adds_the_mean_likelihood_of_successes() -> None:
    at = fields(LOGPS, [[1.0], [-1.0], [0.5]], old_logps=LOGPS, mask=MASK)
    at["positive_weights"] = positive_weights(SCORES, at["mask"])
    weights = np.asarray(dovetail.get("loss_agg", "token_mean")(at["mask"]))
    added = np.sum(weights * (value("vapo", at, nll_coef=0.3) - value("ppo", at)))
    np.testing.assert_allclose(added, 0.3 * (1.0 + 2.0 + 3.0) / 3, rtol=1e-6)
    pull = gradient("vapo", at, nll_coef=0.3) - gradient("ppo", at)
    np.testing.assert_allclose(weights * pull, -0.1 * MASK * [[1], [0], [1]], rtol=1e-6)


def test_the_threshold_decides_what_counts_as_a_success() -> None:
    weights = positive_weights(SCORES, jnp.asarray(MASK), threshold=0.5)
    np.testing.assert_allclose(weights, 3.0 * MASK * [[1], [0], [0]])
    assert (positive_weights(SCORES, jnp.asarray(MASK), threshold=2.0) == 0).all()
    assert (positive_weights(SCORES, jnp.zeros_like(MASK)) == 0).all()
