"""Policy loss `topr`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient

LOGPS = np.array([[-1.0, -1.5], [1.0, 0.5], [-1.0, -1.5], [1.0, 0.5]])
ADVANTAGES = np.array([[2.0], [2.0], [-1.0], [-1.0]])


def test_by_hand() -> None:
    # successes weigh one; failures min(W, 1), with W = e^-2.5 and e^1.5
    weights = np.array([[1.0], [1.0], [np.exp(-2.5)], [1.0]])
    expected = np.broadcast_to(-weights * ADVANTAGES, LOGPS.shape)
    np.testing.assert_allclose(gradient("topr", fields(LOGPS, ADVANTAGES)), expected, rtol=1e-6)


def test_a_failure_left_behind_is_left_alone() -> None:
    assert abs(gradient("topr", fields([[-50.0, -50.0]], -1.0))).max() < 1e-30
    assert (gradient("topr", fields([[-50.0, -50.0]], 1.0)) == -1).all()
