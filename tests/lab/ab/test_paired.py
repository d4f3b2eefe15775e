"""The statistics agree with scipy on fixed data, and simulations confirm their error rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dovetail_lab.ab import paired

DATA = np.array([0.031, -0.004, 0.052, 0.012, 0.027, 0.044, -0.011, 0.038])


def test_sign_flips_agree_with_scipy() -> None:
    expected = stats.permutation_test((DATA,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert paired.sign_flip_p(DATA) == pytest.approx(expected)


def test_drawn_patterns_agree_with_counted_ones() -> None:
    many = np.random.default_rng(1).normal(0.4, 1.0, 16)
    exact = stats.permutation_test((many,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert paired.sign_flip_p(many) == pytest.approx(exact, abs=4 * math.sqrt(exact / paired.PATTERNS))
    assert paired.sign_flip_p(many) == paired.sign_flip_p(many)


def test_ties_count_whatever_the_rounding() -> None:
    assert paired.sign_flip_p(np.full(6, 0.1)) == 2 / 64
    assert paired.sign_flip_p(np.zeros(6)) == 1.0
    assert paired.sign_flip_p(DATA * 1e-9) == paired.sign_flip_p(DATA)
    assert paired.sign_flip_p(DATA + 0.5, shift=0.5) == pytest.approx(paired.sign_flip_p(DATA))


def test_the_t_interval_agrees_with_scipy() -> None:
    expected = stats.ttest_1samp(DATA, 0.0).confidence_interval(0.9)
    found = paired.t_interval(DATA, 0.9)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert paired.t_interval(DATA[:1]) == paired.Interval(-math.inf, math.inf)


def test_the_bca_interval_holds_the_mean_and_survives_equal_differences() -> None:
    found = paired.bca_interval(DATA)
    assert found.low < DATA.mean() < found.high
    assert paired.bca_interval(np.full(5, 0.25)) == paired.Interval(0.25, 0.25)


def test_the_interquartile_mean_agrees_with_scipy_where_quartiles_fall_between_values() -> None:
    assert paired.iqm(DATA) == pytest.approx(stats.trim_mean(DATA, 0.25))
    assert paired.iqm(np.array([3.0])) == 3.0


def test_the_probability_of_improvement_is_mann_whitney() -> None:
    other = DATA[::-1] * 0.9 + 0.01
    expected = stats.mannwhitneyu(DATA, other).statistic / len(DATA) ** 2
    assert paired.improvement_probability(DATA, other) == pytest.approx(expected)


def test_holm_agrees_with_a_case_by_hand() -> None:
    assert paired.holm(np.array([0.2, 0.01, 0.02])).tolist() == pytest.approx([0.2, 0.03, 0.04])


@pytest.mark.parametrize(
    ("pairs", "alpha", "error"), [(6, 0.05, 0.03), (7, 0.05, 0.06), (8, 0.02, 0.06), (10, 0.05, 0.03)]
)
@pytest.mark.parametrize("effect", [0.6, 1.0, 1.6])
def test_power_is_that_of_simulated_sign_flip_tests(effect: float, pairs: int, alpha: float, error: float) -> None:
    draws = np.random.default_rng(0).normal(effect, 1.0, (1500, pairs))
    simulated = np.mean([paired.sign_flip_p(row) <= alpha for row in draws])
    assert paired.power(effect, 1.0, pairs, alpha) == pytest.approx(simulated, abs=error)
    assert paired.power(-effect, 1.0, pairs, alpha) == paired.power(effect, 1.0, pairs, alpha)


def test_more_pairs_and_larger_effects_never_have_less_power() -> None:
    by_pairs = [paired.power(0.8, 1.0, pairs) for pairs in range(2, 40)]
    by_effect = [paired.power(effect, 1.0, 8) for effect in np.linspace(0, 4, 30)]
    assert by_pairs == sorted(by_pairs)
    assert by_effect == sorted(by_effect)


def test_what_is_detectable_is_found_with_the_wanted_power() -> None:
    effect = paired.detectable_effect(0.3, 9, wanted=0.9)
    assert paired.power(effect, 0.3, 9) == pytest.approx(0.9, abs=1e-3)
    needed = paired.pairs_needed(0.1, 0.3)
    assert needed is not None
    assert paired.power(0.1, 0.3, needed) >= 0.8 > paired.power(0.1, 0.3, needed - 1)


@pytest.mark.parametrize("effect", [0.2, 0.5945, 1.5])
def test_power_is_a_number_far_beyond_what_is_needed(effect: float) -> None:
    found = [paired.power(effect, 1.0, pairs) for pairs in range(6, 600)]
    assert np.isfinite(found).all()
    assert found[-1] > 0.99
    needed = paired.pairs_needed(effect, 1.0)
    assert needed == next(pairs for pairs, each in enumerate(found, 6) if each >= 0.8)


def test_a_test_that_cannot_reject_has_no_power() -> None:
    assert paired.power(100.0, 1.0, 5) == 0.0
    assert paired.detectable_effect(1.0, 5) == math.inf
    assert paired.power(100.0, 1.0, 6) == paired.power(100.0, 1.0, 7) == 1.0
    assert paired.pairs_needed(100.0, 1.0) == 6
