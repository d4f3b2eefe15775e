"""Policy loss `sapo`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loss.policy_loss.by_hand import fields, gradient, result, value


def logistic(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def test_by_hand() -> None:
    at = fields(np.log([[1.5, 1.5]]), [[2.0, -2.0]])
    up, down = logistic(0.5 * 1.0), logistic(0.5 * 2.0)
    np.testing.assert_allclose(value("sapo", at, tau_neg=2.0), [[-2 * 4 * up, 2 * 2 * down]], rtol=1e-6)
    slopes = [[-2 * 4 * up * (1 - up) * 1.5, 2 * 4 * down * (1 - down) * 1.5]]
    np.testing.assert_allclose(gradient("sapo", at, tau_neg=2.0), slopes, rtol=1e-6)


def test_the_gate_is_open_at_one_and_closes_on_both_sides() -> None:
    _, metrics = result("sapo", fields(np.log([[1.0, 0.5, 2.0, 10.0]]), 1.0), tau_pos=3.0)
    at_one, below, above, far = metrics["gate"][0]
    assert at_one == 1
    np.testing.assert_allclose(below, 4 * logistic(1.5) * logistic(-1.5), rtol=1e-6)
    assert at_one > below > above > far


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_the_gradient_is_largest_where_the_docstring_says(tau: float) -> None:
    ratios = np.linspace(0.05, 12.0, 4000)
    pull = -gradient("sapo", fields(np.log(ratios)[None], 1.0), tau_pos=tau)[0]
    largest = ratios[np.argmax(pull)]
    np.testing.assert_allclose(tau * largest * np.tanh(tau * (largest - 1) / 2), 1.0, rtol=1e-2)
    assert largest > 1
    if tau == 1.0:
        np.testing.assert_allclose([largest, pull.max()], [2.06, 1.57], atol=0.01)


def test_a_negative_advantage_closes_faster() -> None:
    _, metrics = result("sapo", fields(np.log([[2.0, 2.0]]), [[1.0, -1.0]]))
    assert metrics["gate"][0, 0] > metrics["gate"][0, 1]


def test_at_sequence_level_the_ratio_is_the_geometric_mean() -> None:
    at = fields([[0.3, -0.1]], 1.0)
    np.testing.assert_allclose(
        value("sapo", at, level="sequence"), -4 * logistic(np.exp(0.1) - 1) * np.ones((1, 2)), rtol=1e-6
    )
