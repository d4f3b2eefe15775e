"""Advantages `reinforce`, `reinforce_plus_plus`, `reinforce_plus_plus_baseline` and `remax`: hand cases and relations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import Batch, random_batch

from dovetail_advantage.advantage.dr_grpo import dr_grpo
from dovetail_advantage.advantage.gae import gae
from dovetail_advantage.advantage.reinforce import reinforce
from dovetail_advantage.advantage.reinforce_plus_plus import reinforce_plus_plus
from dovetail_advantage.advantage.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from dovetail_advantage.advantage.remax import remax

REWARDS = jnp.array([[0.5, 7.0, 2.0], [-1.0, 4.0, 9.0]])
MASK = jnp.array([[True, False, True], [True, True, False]])


def fields(batch: Batch, *names: str) -> dict[str, Any]:
    return {name: jnp.asarray(batch[name]) for name in names}


def test_reinforce_by_hand_with_a_tool_token_in_between():
    np.testing.assert_allclose(reinforce(REWARDS, MASK, gamma=0.5), [[0.5 + 0.5 * 2, 0, 2], [-1 + 0.5 * 4, 4, 0]])


def test_reinforce_is_gae_of_a_critic_that_knows_nothing():
    batch = random_batch()
    advantages, _ = gae(
        **fields(batch | {"values": np.zeros_like(batch["values"])}, "token_rewards", "values", "mask"),
        gamma=0.9,
        lam=1.0,
        whiten=False,
    )
    np.testing.assert_array_equal(reinforce(**fields(batch, "token_rewards", "mask"), gamma=0.9), advantages)


def test_reinforce_plus_plus_by_hand():
    # Returns 2.5, 2, 3, 4 at the four policy tokens: mean 2.875, squared deviations 2.1875.
    expected = (np.array([[2.5, 0, 2], [3, 4, 0]]) - 2.875) / np.sqrt(2.1875 / 3)
    np.testing.assert_allclose(reinforce_plus_plus(REWARDS, MASK), np.where(MASK, expected, 0), rtol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus_orders_tokens_as_reinforce_does(gamma):
    batch = random_batch()
    plain = np.asarray(reinforce(**fields(batch, "token_rewards", "mask"), gamma=gamma))[batch["mask"]]
    whitened = np.asarray(reinforce_plus_plus(**fields(batch, "token_rewards", "mask"), gamma=gamma))[batch["mask"]]
    np.testing.assert_allclose([whitened.mean(), whitened.std(ddof=1)], [0, 1], atol=1e-6)
    assert np.corrcoef(plain, whitened)[0, 1] == pytest.approx(1)


def test_reinforce_plus_plus_baseline_by_hand():
    # The group's mean is 2: deviations -1 on one token and 1 on three, with mean 0.5 and variance 1.
    mask = jnp.array([[True, False, False], [True, True, True]])
    advantages = reinforce_plus_plus_baseline(jnp.array([1.0, 3.0]), jnp.array([4, 4]), mask)
    np.testing.assert_allclose(advantages, [[-1.5, 0, 0], [0.5, 0.5, 0.5]], rtol=1e-6)


def test_reinforce_plus_plus_baseline_is_dr_grpo_up_to_shift_and_scale():
    batch = random_batch()
    read = fields(batch, "scores", "group_ids", "mask")
    plain, whitened = np.asarray(dr_grpo(**read)), np.asarray(reinforce_plus_plus_baseline(**read))
    assert np.corrcoef(plain[batch["mask"]], whitened[batch["mask"]])[0, 1] == pytest.approx(1)


def test_remax_by_hand():
    advantages = remax(REWARDS, jnp.array([0.25, 1.0]), MASK)
    np.testing.assert_allclose(advantages, [[2.5 - 0.25, 0, 2 - 0.25], [3 - 1, 4 - 1, 0]])


def test_remax_against_a_greedy_completion_that_scored_zero_is_reinforce():
    batch = random_batch()
    read = fields(batch, "token_rewards", "mask")
    np.testing.assert_array_equal(remax(**read, greedy_scores=jnp.zeros(len(batch["mask"]))), reinforce(**read))
