"""Policy loss `dro`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

AT = fields([[-1.0, -2.0]], [[1.0, -1.0]], old_logps=[[-3.0, -2.5]])


def test_by_hand() -> None:
    np.testing.assert_allclose(value("dro", AT, beta=0.5), [[1 + 0.25 * 4, -2 + 0.25 * 0.25]], rtol=1e-6)
    np.testing.assert_allclose(gradient("dro", AT, beta=0.5), [[-1 + 0.5 * 2, 1 + 0.5 * 0.5]], rtol=1e-6)


def test_a_token_rests_where_the_spring_balances_the_advantage() -> None:
    at = fields([[-1.0, -1.0]], [[2.0, -1.0]], old_logps=[[-1.0 - 2.0 / 0.5, -1.0 + 1.0 / 0.5]])
    np.testing.assert_allclose(gradient("dro", at, beta=0.5), [[0.0, 0.0]], atol=1e-6)


def test_metrics() -> None:
    _, metrics = result("dro", AT, beta=0.5)
    np.testing.assert_allclose(metrics["penalty"], [[1.0, 0.0625]])
