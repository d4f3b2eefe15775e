"""Advantages `decoupled_gae` and `length_adaptive_gae`: their relations to `gae`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import Batch, random_batch, rows, with_mask

from dovetail_advantage.advantage.decoupled_gae import decoupled_gae
from dovetail_advantage.advantage.gae import gae
from dovetail_advantage.advantage.length_adaptive_gae import length_adaptive_gae


def fields(batch: Batch) -> dict[str, Any]:
    return {name: jnp.asarray(batch[name]) for name in ("token_rewards", "values", "mask")}


@pytest.mark.parametrize("whiten", [True, False])
def test_equal_lambdas_are_gae(whiten):
    read = fields(random_batch())
    ours = decoupled_gae(**read, gamma=0.9, lam=0.7, critic_lam=0.7, whiten=whiten)
    for part, expected in zip(ours, gae(**read, gamma=0.9, lam=0.7, whiten=whiten), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_each_lambda_has_its_own_result():
    read = fields(random_batch())
    advantages, returns = decoupled_gae(**read, gamma=0.9, lam=0.3, critic_lam=0.8)
    np.testing.assert_array_equal(advantages, gae(**read, gamma=0.9, lam=0.3)[0])
    np.testing.assert_array_equal(returns, gae(**read, gamma=0.9, lam=0.8)[1])


def test_the_critic_of_the_papers_learns_the_return():
    batch = random_batch()
    to_go = np.cumsum(batch["token_rewards"][:, ::-1], axis=1)[:, ::-1]
    for estimator in (decoupled_gae, length_adaptive_gae):
        _, returns = estimator(**fields(batch))
        np.testing.assert_allclose(returns, np.where(batch["mask"], to_go, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.4, 1.0])
def test_lambda_follows_from_the_policy_tokens_of_each_completion(alpha):
    batch = random_batch()
    advantages, _ = length_adaptive_gae(**fields(batch), gamma=0.9, alpha=alpha, whiten=False)
    for row, length in enumerate(batch["lengths"]):
        lam = 1 - 1 / max(alpha * length, 1)
        expected, _ = gae(**fields(rows(batch, [row])), gamma=0.9, lam=lam, whiten=False)
        np.testing.assert_allclose(advantages[row], expected[0], rtol=1e-5, atol=1e-6)


def test_a_completion_below_one_over_alpha_tokens_gets_one_step_errors():
    batch = random_batch()
    advantages, _ = length_adaptive_gae(**fields(batch), whiten=False)
    assert batch["lengths"].max() < 20
    np.testing.assert_array_equal(advantages, gae(**fields(batch), lam=0.0, whiten=False)[0])


def test_a_row_without_policy_tokens_has_no_lambda_and_no_advantage():
    batch = random_batch()
    mask = batch["mask"].copy()
    mask[0] = False
    for part in length_adaptive_gae(**fields(with_mask(batch, mask)), alpha=1.0):
        assert np.isfinite(part).all()
        assert not np.asarray(part)[0].any()
