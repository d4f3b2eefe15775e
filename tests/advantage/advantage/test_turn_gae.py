"""Advantage `turn_gae`: hand case, and equality with `gae` if each turn is one step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.episodes import episodes, read, spread, turn_by_turn

from dovetail_advantage.advantage.gae import gae
from dovetail_advantage.advantage.turn_gae import turn_gae

READS = ("token_rewards", "values", "turns", "mask")


def test_by_hand():
    mask, turns = jnp.array([[1, 1, 0, 1, 1]]) == 1, jnp.array([[0, 0, 0, 1, 1]])
    rewards, values = jnp.array([[0.5, 0.5, 9.0, 0.0, 2.0]]), jnp.array([[1.0, 7.0, 9.0, 3.0, 7.0]])
    advantages, returns = turn_gae(rewards, values, turns, mask, gamma=0.5, lam=0.5, whiten=False)
    # δ = 1 + 3/2 - 1 = 1.5 and 2 - 3 = -1;  A = 1.5 - 1/4 and -1
    np.testing.assert_allclose(advantages, [[1.25, 1.25, 0, -1, -1]])
    np.testing.assert_allclose(returns, [[2.25, 2.25, 0, 2, 2]])


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 0.0), (0.5, 1.0)])
def test_a_turn_is_one_step(gamma: float, lam: float):
    fields = episodes()
    found = turn_gae(*read(fields, *READS), gamma=gamma, lam=lam, whiten=False)
    steps = gae(*read(turn_by_turn(fields), "token_rewards", "values", "mask"), gamma=gamma, lam=lam, whiten=False)
    for ours, theirs in zip(found, steps, strict=True):
        np.testing.assert_allclose(ours, spread(theirs, fields), rtol=1e-5, atol=1e-6)


def test_whitening_counts_tokens():
    fields = episodes()
    advantages, _ = turn_gae(*read(fields, *READS))
    inside = np.asarray(advantages)[np.asarray(fields["mask"])]
    np.testing.assert_allclose([inside.mean(), inside.std(ddof=1)], [0, 1], atol=1e-5)
