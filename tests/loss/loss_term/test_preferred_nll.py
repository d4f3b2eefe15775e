"""Loss term `preferred_nll`: the likelihood of the completions that win a pair."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.loss_term.test_orpo import GROUPS, LOGPS, MASK, NLL, SCORES

from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.loss_term.orpo import orpo
from dovetail_loss.loss_term.preferred_nll import preferred_nll


def mean(loss):
    return jnp.sum(sequence_mean_token_mean(MASK) * loss)


def test_by_hand():
    loss = preferred_nll(LOGPS, SCORES, GROUPS, MASK)
    np.testing.assert_allclose(mean(loss), NLL[[0, 3]].mean(), rtol=1e-6)
    np.testing.assert_array_equal(loss[1:3], jnp.zeros((2, 3)))
    np.testing.assert_array_equal(loss, orpo(LOGPS, SCORES, GROUPS, MASK, ratio_coef=0.0)[0])


@pytest.mark.parametrize(
    ("options", "winners"),
    [({}, [0, 0, 3, 3, 3]), ({"margin": 2.0}, [3, 3]), ({"pairs": "extremes"}, [3, 3])],
    ids=["all", "apart", "extremes"],
)
def test_a_completion_counts_as_often_as_it_wins(options, winners):
    """Scores 1, 0, 0, 2 of one prompt."""
    loss = preferred_nll(LOGPS, SCORES, jnp.zeros(4, jnp.int32), MASK, **options)
    np.testing.assert_allclose(mean(loss), NLL[winners].mean(), rtol=1e-6)
