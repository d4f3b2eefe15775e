"""Advantage `turn_rloo`: hand cases, equality with `rloo`, and the unbiasedness of its policy gradient."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.episodes import episodes, read

from dovetail_advantage.advantage.rloo import rloo
from dovetail_advantage.advantage.turn_returns import turn_returns
from dovetail_advantage.advantage.turn_rloo import turn_rloo

READS = ("token_rewards", "turns", "group_ids", "mask")
MASK, TURNS = (
    jnp.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0]]) == 1,
    jnp.array([[0, 0, 1, 1], [0] * 4, [0, 0, 1, 0]]),
)
REWARDS = jnp.array([[1.0, 9.0, 0.0, 3.0], [0.0, 2.0, 9.0, 9.0], [0.0, 9.0, 1.0, 9.0]])
IDS = jnp.array([7, 7, 7])


def test_by_hand():
    # returns (4, 3), (2) and (1, 1); the second goes on counting with 2 in turn 1
    found = turn_rloo(REWARDS, TURNS, IDS, MASK)
    np.testing.assert_allclose(found, [[2.5, 0, 1.5, 1.5], [-0.5, -0.5, 0, 0], [-2, 0, -1.5, 0]], rtol=1e-6)
    found = turn_rloo(REWARDS, TURNS, IDS, MASK, ended="out")
    np.testing.assert_allclose(found, [[2.5, 0, 2, 2], [-0.5, -0.5, 0, 0], [-2, 0, -2, 0]], rtol=1e-6)


def test_a_turn_that_nobody_else_gets_to_has_a_baseline_all_the_same():
    rewards, turns, ids = REWARDS[:2], TURNS[:2], IDS[:2]
    np.testing.assert_allclose(turn_rloo(rewards, turns, ids, MASK[:2]), [[2, 0, 1, 1], [-2, -2, 0, 0]])
    out = turn_rloo(rewards, turns, ids, MASK[:2], ended="out")
    np.testing.assert_allclose(out, [[2, 0, 0, 0], [-2, -2, 0, 0]])


def test_with_a_reward_at_the_end_alone_it_is_rloo():
    fields = episodes()
    last = np.asarray(fields["mask"]) & (np.cumsum(np.asarray(fields["mask"])[:, ::-1], axis=1)[:, ::-1] == 1)
    fields["token_rewards"] = jnp.where(last, fields["scores"][:, None], 0.0)
    found = turn_rloo(*read(fields, *READS))
    np.testing.assert_allclose(found, rloo(*read(fields, "scores", "group_ids", "mask")), rtol=1e-5, atol=1e-6)


EARNED = {(0,): (0.5,), (1, 0): (1.0, -2.0), (1, 1): (1.0, 3.0)}
"""The rewards of an episode's turns by the actions in them; action 1 in turn 0 means to take another turn."""
THETA = jnp.array([0.3, -0.4])


def expected_gradient(estimator, group=3):
    """Return the expectation over all groups of episodes of the mean of ∑_k ∇log π(a_k)·A_k, and the gradient of J."""
    rate = jax.nn.sigmoid(THETA)
    groups = list(itertools.product(EARNED, repeat=group))
    chosen = [episode for members in groups for episode in members]

    def score(turn: int, choice: int) -> np.ndarray:
        return np.eye(2)[turn] * (choice - float(rate[turn]))

    def chance(episode: tuple[int, ...]) -> float:
        return float(np.prod([float(rate[k]) if a else 1 - float(rate[k]) for k, a in enumerate(episode)]))

    padded = jnp.array([(*EARNED[episode], 0.0)[:2] for episode in chosen])
    mask = jnp.array([[True, len(episode) > 1] for episode in chosen])
    turns, ids = jnp.tile(jnp.arange(2), (len(chosen), 1)), jnp.repeat(jnp.arange(len(groups)), group)
    advantages = np.asarray(estimator(padded, turns, ids, mask), np.float64)
    total = np.zeros(2)
    for row, episode in enumerate(chosen):
        weight = np.prod([chance(member) for member in groups[row // group]]) / group
        total += weight * sum(score(k, a) * advantages[row, k] for k, a in enumerate(episode))

    def objective(theta):
        p = jax.nn.sigmoid(theta)
        return (1 - p[0]) * 0.5 + p[0] * (1.0 - 2.0 * (1 - p[1]) + 3.0 * p[1])

    return total, np.asarray(jax.grad(objective)(THETA), np.float64)


def test_its_policy_gradient_is_unbiased_where_the_policy_decides_when_to_stop():
    found, exact = expected_gradient(turn_rloo)
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(lambda *fields: turn_rloo(*fields, ended="out"), id="out"),
        pytest.param(lambda *fields: turn_returns(*fields, scale="none"), id="turn_returns"),
    ],
)
def test_others_are_not(estimator):
    """The first gives zero to a turn without other turns to compare; in the second a turn is in its own baseline."""
    found, exact = expected_gradient(estimator)
    assert np.abs(found - exact).max() > 0.02 * np.abs(exact).max()
