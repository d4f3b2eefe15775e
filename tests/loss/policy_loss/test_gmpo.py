"""Policy loss `gmpo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value


def test_by_hand() -> None:
    # row 0: 0.9 bounded to 0.4; row 1, A < 0: -0.9 bounded to -0.4, 0.9 free
    at = fields([[0.9, 0.2, 9.0], [-0.9, 0.9, 0.1]], [[1.0], [-2.0]], mask=[[True, True, False], [True] * 3])
    rho = np.exp([(0.4 + 0.2) / 2, (-0.4 + 0.9 + 0.1) / 3])
    np.testing.assert_allclose(value("gmpo", at), [[-rho[0], -rho[0], 0], [2 * rho[1]] * 3], rtol=1e-6)
    # every token's loss has ρ in it, and ρ a share of each unclipped token
    expected = [[0, -2 * rho[0] / 2, 0], [0, 3 * 2 * rho[1] / 3, 3 * 2 * rho[1] / 3]]
    np.testing.assert_allclose(gradient("gmpo", at), expected, rtol=1e-6)


def test_a_clipped_token_does_not_stop_its_completion() -> None:
    at = fields([[0.9, 0.1]], 1.0)
    assert (gradient("gspo", at, epsilon_low=0.4, epsilon_high=0.4) == 0).all()
    np.testing.assert_array_equal(gradient("gmpo", at) != 0, [[False, True]])


def test_metrics() -> None:
    _, metrics = result("gmpo", fields([[0.9, -0.9], [0.9, -0.9]], [[1.0], [-1.0]]))
    np.testing.assert_array_equal(metrics["clip_fraction_high"], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(metrics["clip_fraction_low"], [[0, 0], [0, 1]])
    np.testing.assert_allclose(metrics["ratio"][0], np.exp([(0.4 - 0.9) / 2] * 2), rtol=1e-6)


def test_one_outlier_moves_it_little() -> None:
    usual, outlier = fields([[0.1] * 10], -1.0), fields([[0.1] * 9 + [3.0]], -1.0)
    ratio = value("gmpo", outlier)[0, 0] / value("gmpo", usual)[0, 0]
    np.testing.assert_allclose(ratio, np.exp(0.29), rtol=1e-5)
