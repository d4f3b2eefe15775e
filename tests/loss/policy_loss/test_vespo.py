"""Policy loss `vespo`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loss.policy_loss.by_hand import fields, gradient, result, value


def phi(log_ratio: float, k: float, rate: float) -> float:
    return float(np.exp(k * log_ratio + rate * (1 - np.exp(log_ratio))))


def test_by_hand() -> None:
    at = fields([[0.3, -0.1, 9.0], [0.3, -0.1, -0.6]], [[2.0], [-1.0]], mask=[[True, True, False], [True] * 3])
    up, down = phi(0.2, 2.0, 3.0), phi(-0.4, 3.0, 2.0)
    np.testing.assert_allclose(gradient("vespo", at), [[-2 * up, -2 * up, 0], [down] * 3], rtol=1e-5)
    expected = [[-2 * up * 0.3, 2 * up * 0.1, 0], [down * 0.3, -down * 0.1, -down * 0.6]]
    np.testing.assert_allclose(value("vespo", at), expected, rtol=1e-5)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_weight_is_one_on_policy_and_fades_on_both_sides(advantage: float) -> None:
    _, metrics = result("vespo", fields([[0.0], [3.0], [-5.0], [200.0], [-200.0]], advantage))
    on_policy, *far = metrics["weight"][:, 0]
    np.testing.assert_allclose(on_policy, 1.0, rtol=1e-6)
    assert (np.array(far) < 1e-3).all()


def test_it_is_the_product_of_the_ratios_whatever_the_length() -> None:
    split, whole = fields([[0.1, 0.1, 0.1]], 1.0), fields([[0.3, 0.0, 0.0]], 1.0)
    np.testing.assert_allclose(gradient("vespo", split), gradient("vespo", whole), rtol=1e-6)


def test_an_advantage_of_zero_counts_as_positive() -> None:
    _, metrics = result("vespo", fields([[0.5]], 0.0))
    np.testing.assert_allclose(metrics["weight"], phi(0.5, 2.0, 3.0), rtol=1e-6)
