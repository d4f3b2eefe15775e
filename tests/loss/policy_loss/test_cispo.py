"""Policy loss `cispo`."""

from __future__ import annotations

import numpy as np
from tests.loss.policy_loss.by_hand import fields, gradient, result, value

RATIOS = np.array([[9.0, 0.3, 1.5, 9.0]])
AT = fields(np.log(RATIOS), [[1.0, 1.0, -2.0, -1.0]])


def test_by_hand() -> None:
    bounded = np.array([[2.0, 0.5, 1.5, 2.0]])
    expected = -bounded * np.array([[1.0, 1.0, -2.0, -1.0]])
    np.testing.assert_allclose(
        value("cispo", AT, epsilon_low=0.5, epsilon_high=1.0), expected * np.log(RATIOS), rtol=1e-5
    )
    np.testing.assert_allclose(gradient("cispo", AT, epsilon_low=0.5, epsilon_high=1.0), expected, rtol=1e-5)


def test_by_default_there_is_no_lower_bound_and_the_upper_one_is_five() -> None:
    expected = -np.array([[5.0, 0.3, 1.5, 5.0]]) * np.array([[1.0, 1.0, -2.0, -1.0]])
    np.testing.assert_allclose(gradient("cispo", AT), expected, rtol=1e-5)


def test_the_upper_bound_may_be_given_as_a_ratio() -> None:
    absolute, relative = (gradient("cispo", AT, **params) for params in ({"max_ratio": 2.0}, {"epsilon_high": 1.0}))
    np.testing.assert_array_equal(absolute, relative)


def test_metrics_count_both_bounds_whatever_the_advantage() -> None:
    _, metrics = result("cispo", AT, epsilon_low=0.5, epsilon_high=1.0)
    np.testing.assert_array_equal(metrics["clip_fraction_high"], [[1, 0, 0, 1]])
    np.testing.assert_array_equal(metrics["clip_fraction_low"], [[0, 1, 0, 0]])
    np.testing.assert_array_equal(metrics["clip_fraction"], [[1, 1, 0, 1]])


def test_at_sequence_level_all_tokens_weigh_the_same() -> None:
    at = fields([[0.3, -0.1, 9.0]], 1.0, mask=[[True, True, False]])
    np.testing.assert_allclose(gradient("cispo", at, level="sequence"), [[-np.exp(0.1), -np.exp(0.1), 0]], rtol=1e-6)
