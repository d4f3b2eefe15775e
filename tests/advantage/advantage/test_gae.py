"""Advantage `gae`: hand case, the recursion as a plain loop, its two ends, whitening."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import Batch, random_batch, with_mask

from dovetail_advantage.advantage.gae import gae


def fields(batch: Batch) -> dict[str, Any]:
    return {name: jnp.asarray(batch[name]) for name in ("token_rewards", "values", "mask")}


def loop(batch: Batch, gamma: float, lam: float) -> np.ndarray:
    """Return the advantages, computed for each row from the list of its policy tokens."""
    advantages = np.zeros(batch["mask"].shape)
    for row, mask in enumerate(batch["mask"]):
        positions = np.flatnonzero(mask)
        trace = next_value = 0.0
        for t in positions[::-1]:
            value = float(batch["values"][row, t])
            delta = float(batch["token_rewards"][row, t]) + gamma * next_value - value
            trace = delta + gamma * lam * trace
            next_value = value
            advantages[row, t] = trace
    return advantages


def test_by_hand_with_a_tool_token_in_between():
    rewards = jnp.array([[0.5, 7.0, 1.0]])
    values = jnp.array([[0.2, 7.0, 0.4]])
    mask = jnp.array([[True, False, True]])
    advantages, returns = gae(rewards, values, mask, gamma=0.5, lam=0.8, whiten=False)
    # Last: 1 - 0.4. First: 0.5 + 0.5·0.4 - 0.2 + 0.5·0.8·0.6.
    np.testing.assert_allclose(advantages, [[0.74, 0, 0.6]], rtol=1e-6)
    np.testing.assert_allclose(returns, [[0.94, 0, 1.0]], rtol=1e-6)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.7), (0.99, 0.0), (1.0, 1.0)])
def test_scan_equals_loop(gamma, lam):
    batch = random_batch()
    advantages, returns = gae(**fields(batch), gamma=gamma, lam=lam, whiten=False)
    expected = loop(batch, gamma, lam)
    np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(returns, np.where(batch["mask"], expected + batch["values"], 0), rtol=1e-5, atol=1e-6)


def test_lam_one_is_the_return_less_the_critic():
    batch = random_batch()
    advantages, returns = gae(**fields(batch), lam=1.0, whiten=False)
    to_go = np.cumsum(batch["token_rewards"][:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(returns, np.where(batch["mask"], to_go, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantages, np.where(batch["mask"], to_go - batch["values"], 0), rtol=1e-5, atol=1e-5)


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_policy_tokens():
    batch = random_batch()
    whitened, returns = gae(**fields(batch))
    plain, same_returns = gae(**fields(batch), whiten=False)
    policy = np.asarray(whitened)[batch["mask"]]
    np.testing.assert_allclose([policy.mean(), policy.std(ddof=1)], [0, 1], atol=1e-6)
    np.testing.assert_array_equal(returns, same_returns)
    assert np.corrcoef(policy, np.asarray(plain)[batch["mask"]])[0, 1] == pytest.approx(1)


def test_a_perfect_critic_leaves_nothing_to_learn():
    batch = random_batch()
    to_go = np.cumsum(batch["token_rewards"][:, ::-1], axis=1)[:, ::-1]
    batch["values"] = to_go.astype(np.float32)
    plain, _ = gae(**fields(batch), whiten=False)
    np.testing.assert_allclose(plain, 0, atol=1e-5)


def test_one_policy_token_whitens_to_zero():
    batch = random_batch()
    mask = np.zeros_like(batch["mask"])
    last = np.flatnonzero(batch["mask"][1])[-1]
    mask[1, last] = True
    advantages, returns = gae(**fields(with_mask(batch, mask)))
    np.testing.assert_array_equal(advantages, 0)
    np.testing.assert_allclose(returns, np.where(mask, batch["token_rewards"], 0), rtol=1e-6)
