"""Advantage `mt_grpo`: hand case, and the case in which it equals `grpo`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from tests.advantage.episodes import episodes, read

from dovetail_advantage.advantage.grpo import grpo
from dovetail_advantage.advantage.mt_grpo import mt_grpo

READS = ("scores", "turn_rewards", "turn_mask", "turns", "group_ids", "mask")


def test_by_hand():
    # τ = 2, 0, 1 and o = 1, 2, 0; the last episode has one turn
    mask = jnp.array([[1, 0, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]]) == 1
    turns = jnp.array([[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
    earned, there = jnp.array([[2.0, 9.0], [0.0, 9.0], [1.0, 9.0]]), jnp.array([[1, 1], [1, 1], [1, 0]]) == 1
    scores, ids = jnp.array([3.0, 2.0, 1.0]), jnp.array([7, 7, 7])
    found = mt_grpo(scores, earned, there, turns, ids, mask, turn_weight=0.5, scale="none")
    np.testing.assert_allclose(found, [[0.5, 0, 0, 0], [0.5, 0, 1, 0], [-1, -1, 0, 0]], atol=1e-6)
    # each normalised by its own deviation, all of which are 1 here
    np.testing.assert_allclose(
        mt_grpo(scores, earned, there, turns, ids, mask, turn_weight=0.5, epsilon=0.0), found, atol=1e-6
    )


def test_without_rewards_of_turns_it_is_grpo():
    fields = episodes()
    fields["turn_rewards"] = jnp.zeros_like(fields["turn_rewards"])
    np.testing.assert_allclose(
        mt_grpo(*read(fields, *READS)), grpo(*read(fields, "scores", "group_ids", "mask")), atol=1e-6
    )


def test_what_later_turns_earn_belongs_to_the_outcome():
    fields = episodes()
    later = jnp.where(jnp.arange(4)[None, :] > 0, 0.0, fields["turn_rewards"])
    np.testing.assert_array_equal(
        mt_grpo(*read(fields | {"turn_rewards": later}, *READS)), mt_grpo(*read(fields, *READS))
    )
