"""Aggregation `prompt_mean`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dovetail_loss.loss_agg.prompt_mean import prompt_mean
from dovetail_loss.loss_agg.sequence_mean_token_mean import sequence_mean_token_mean
from dovetail_loss.loss_agg.token_mean import token_mean

MASK = jnp.array([[True, True, True], [True, False, False], [True, True, False], [False] * 3, [False] * 3])


def test_by_hand() -> None:
    # prompt 7 has 3 + 2 tokens, prompt 2 one, prompt 5 none
    weights = prompt_mean(MASK, jnp.array([7, 2, 7, 7, 5]))
    np.testing.assert_allclose(weights, np.where(MASK, np.array([[0.1], [0.5], [0.1], [0.0], [0.0]]), 0.0), rtol=1e-6)


def test_of_one_prompt_it_is_the_token_mean() -> None:
    np.testing.assert_allclose(prompt_mean(MASK, jnp.zeros(5, int)), token_mean(MASK), rtol=1e-6)


def test_of_one_completion_per_prompt_it_is_the_mean_over_completions() -> None:
    np.testing.assert_allclose(prompt_mean(MASK, jnp.arange(5)), sequence_mean_token_mean(MASK), rtol=1e-6)


def test_labels_of_groups_do_not_matter() -> None:
    one, other = (prompt_mean(MASK, jnp.array(ids)) for ids in ([0, 1, 0, 2, 1], [5, -3, 5, 9, -3]))
    np.testing.assert_array_equal(one, other)
