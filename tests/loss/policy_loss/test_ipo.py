"""Policy loss `ipo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

NEW, SAMPLED = np.array([[0.6, 0.6, 0.1]]), np.array([[0.4, 0.1, 0.6]])
AT = fields(np.log(NEW), [[1.0, 1.0, 1.0]], rollout_logps=np.log(SAMPLED))
X = np.log(NEW / SAMPLED)
KEPT = np.array([[1, 0, 0]])


def test_by_hand() -> None:
    np.testing.assert_allclose(value("ipo", AT, kl_coef=0.1), -KEPT * NEW / SAMPLED + 0.1 * X**2, rtol=1e-5)
    np.testing.assert_allclose(gradient("ipo", AT, kl_coef=0.1), -KEPT * NEW / SAMPLED + 0.2 * X, rtol=1e-5)
    np.testing.assert_array_equal(result("ipo", AT)[1]["clip_fraction"], 1 - KEPT)


def test_the_trust_region_is_blind_to_the_advantage() -> None:
    at = AT | {"advantages": -AT["advantages"]}
    np.testing.assert_array_equal(result("ipo", at)[1]["clip_fraction"], 1 - KEPT)
