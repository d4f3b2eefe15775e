"""Advantage `turn_returns`: hand case, and every turn as a sample of its own."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.advantage.episodes import episodes, read, spread, turn_by_turn

from dovetail.arrays import returns_to_go
from dovetail_advantage.advantage.grpo import grpo
from dovetail_advantage.advantage.turn_returns import turn_returns

READS = ("token_rewards", "turns", "group_ids", "mask")


def test_by_hand():
    mask, turns = jnp.array([[1, 0, 1, 1], [1, 1, 0, 0]]) == 1, jnp.array([[0, 0, 1, 1], [0, 0, 0, 0]])
    rewards = jnp.array([[1.0, 9.0, 1.0, 3.0], [2.0, -2.0, 9.0, 9.0]])
    found = turn_returns(rewards, turns, jnp.array([7, 7]), mask, gamma=0.5, scale="none")
    # returns 1 + (1 + 3)/2 = 3, 4 and 0: mean 7/3
    np.testing.assert_allclose(found, [[2 / 3, 0, 5 / 3, 5 / 3], [-7 / 3, -7 / 3, 0, 0]], rtol=1e-5)


def test_it_is_grpo_on_one_completion_for_each_turn():
    fields = episodes()
    by_turn = turn_by_turn(fields)
    returns = returns_to_go(by_turn["token_rewards"], by_turn["mask"], 0.7)
    rows, turns = np.nonzero(np.asarray(by_turn["mask"]))
    alone = grpo(returns[rows, turns], fields["group_ids"][rows], jnp.ones((len(rows), 1), bool))
    expected = np.zeros(by_turn["mask"].shape)
    expected[rows, turns] = np.asarray(alone)[:, 0]
    np.testing.assert_allclose(
        turn_returns(*read(fields, *READS), gamma=0.7), spread(expected, fields), rtol=1e-5, atol=1e-6
    )
