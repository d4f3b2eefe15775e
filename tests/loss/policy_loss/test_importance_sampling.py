"""Policy losses `importance_sampling`, `rollout_is` and `decoupled_ppo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

RATIOS = np.array([[6.0, 0.4, 1.5, 0.4]])
ADVANTAGES = np.array([[1.0, 1.0, -2.0, -1.0]])


def test_importance_sampling_is_ppo_without_a_clip() -> None:
    at = fields(np.log(RATIOS), ADVANTAGES)
    np.testing.assert_allclose(value("importance_sampling", at), -ADVANTAGES * RATIOS, rtol=1e-6)
    np.testing.assert_allclose(gradient("importance_sampling", at), -ADVANTAGES * RATIOS, rtol=1e-6)
    wide = value("ppo", at, epsilon_low=1.0, epsilon_high=100.0)
    np.testing.assert_array_equal(value("importance_sampling", at), wide)


def test_rollout_is_drops_what_is_beyond_the_range_of_the_sampler() -> None:
    at = fields(np.log(RATIOS), ADVANTAGES, old_logps=3.0, rollout_logps=0.0)
    expected = -ADVANTAGES * RATIOS * [[0, 0, 1, 0]]
    np.testing.assert_allclose(gradient("rollout_is", at), expected, rtol=1e-6)
    np.testing.assert_allclose(value("rollout_is", at), expected * np.log(RATIOS), rtol=1e-6)
    metrics = result("rollout_is", at)[1]
    np.testing.assert_array_equal(metrics["clip_fraction_high"], [[1, 0, 0, 0]])
    np.testing.assert_array_equal(metrics["clip_fraction_low"], [[0, 1, 0, 1]])


def test_decoupled_ppo_clips_around_the_old_policy_and_weighs_by_the_sampler() -> None:
    at = fields(np.log(RATIOS), ADVANTAGES, rollout_logps=-np.log([[2.0, 2.0, 4.0, 4.0]]))
    weight = np.array([[2.0, 2.0, 4.0, 4.0]])
    np.testing.assert_allclose(value("decoupled_ppo", at), weight * value("ppo", at), rtol=1e-6)
    np.testing.assert_allclose(gradient("decoupled_ppo", at), weight * gradient("ppo", at), rtol=1e-6)
    np.testing.assert_allclose(result("decoupled_ppo", at)[1]["weight"], weight, rtol=1e-6)


def test_decoupled_ppo_of_a_sampler_that_agrees_is_ppo() -> None:
    at = fields(np.log(RATIOS), ADVANTAGES)
    np.testing.assert_array_equal(value("decoupled_ppo", at), value("ppo", at))
