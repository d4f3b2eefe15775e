"""Advantage `bi_level_gae`: hand case, equality with `gae`, and no reward lost between turns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.episodes import episodes, read, turn_by_turn

from dovetail_advantage.advantage.bi_level_gae import bi_level_gae
from dovetail_advantage.advantage.gae import gae

READS = ("token_rewards", "values", "turns", "mask")


def test_by_hand():
    mask, turns = jnp.array([[1, 1, 0, 1, 1]]) == 1, jnp.array([[0, 0, 0, 1, 1]])
    rewards, values = jnp.array([[0.0, 1.0, 9.0, 4.0, 2.0]]), jnp.array([[3.0, 1.0, 9.0, 7.0, 1.0]])
    advantages, returns = bi_level_gae(rewards, values, turns, mask, turn_gamma=0.5, gamma=1.0, lam=0.5, whiten=False)
    # ends: 2 - 1 = 1, and 1 + (4 + 1)/2 - 1 + 1/4 = 2.75; before them 4 + 1 - 7 + 1/2 and 0 + 1 - 3 + 2.75/2
    np.testing.assert_allclose(advantages, [[-0.625, 2.75, 0, -1.5, 1]])
    np.testing.assert_allclose(returns, [[2.375, 3.75, 0, 5.5, 2]])


def test_without_discounts_it_is_gae_wherever_the_rewards_are():
    fields = episodes()
    noise = np.where(fields["mask"], np.random.default_rng(2).normal(size=fields["mask"].shape), 0)
    fields["token_rewards"] += jnp.asarray(noise.astype(np.float32))
    found = bi_level_gae(*read(fields, *READS), turn_gamma=1.0, gamma=1.0, lam=1.0, whiten=False)
    plain = gae(*read(fields, "token_rewards", "values", "mask"), gamma=1.0, lam=1.0, whiten=False)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.9])
def test_turns_of_one_token_are_steps_of_gae(lam: float):
    fields = turn_by_turn(episodes())
    fields["turns"] = jnp.broadcast_to(jnp.arange(4), (9, 4))
    found = bi_level_gae(*read(fields, *READS), turn_gamma=0.8, gamma=0.1, lam=lam, whiten=False)
    steps = gae(*read(fields, "token_rewards", "values", "mask"), gamma=0.8, lam=lam, whiten=False)
    for ours, theirs in zip(found, steps, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_episode_of_one_turn_is_a_completion_of_gae():
    fields = episodes() | {"turns": jnp.zeros_like(episodes()["turns"])}
    found = bi_level_gae(*read(fields, *READS), turn_gamma=0.1, gamma=0.9, lam=0.8, whiten=False)
    plain = gae(*read(fields, "token_rewards", "values", "mask"), gamma=0.9, lam=0.8, whiten=False)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
