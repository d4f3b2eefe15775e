"""The estimates of an evaluation: unbiased where this is documented, and with intervals of the right coverage."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from dovetail_lab.evaluation.best_of import majority_at_k, pass_at_k
from dovetail_lab.evaluation.statistics import bootstrap, estimate, wilson


@pytest.mark.parametrize(("n", "correct"), [(1, 1), (5, 0), (5, 2), (6, 5), (6, 6)])
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_one(n, correct):
    outcomes = [1] * correct + [0] * (n - correct)
    for k in range(1, n + 1):
        subsets = list(combinations(outcomes, k))
        assert pass_at_k(n, correct, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


@pytest.mark.parametrize("function", [lambda: pass_at_k(8, 3, 9), lambda: majority_at_k(["7"] * 8, [True] * 8, 9)])
def test_more_than_was_drawn_is_refused(function):
    with pytest.raises(ValueError, match="@9 needs 1 to 8 samples of 8"):
        function()


@pytest.mark.parametrize(
    ("answers", "right", "expected"),
    [
        ("778", (1, 1, 0), 1),
        ("788", (1, 0, 0), 0),
        ("7789", (1, 1, 0, 0), 1),
        ("7788", (1, 1, 0, 0), 1 / 2),
        ("789", (1, 0, 0), 1 / 3),
        ("8..", (0, 0, 0), 0),
        ("7..", (1, 0, 0), 1),
        ("...", (0, 0, 0), 0),
    ],
)
def test_the_majority_of_the_votes_counts_and_ties_share(answers, right, expected):
    """Cases by hand; a dot means that there is no answer."""
    given = [None if answer == "." else answer for answer in answers]
    assert majority_at_k(given, [bool(r) for r in right], len(given)) == pytest.approx(expected)


def test_of_one_sample_the_majority_is_the_sample():
    right = [True, False, True, True]
    assert majority_at_k(["7", "8", "7", "7"], right, 1) == pytest.approx(pass_at_k(4, 3, 1))


def test_the_majority_is_unbiased():
    """The mean over all orders of the samples is the mean over all groups of k."""
    answers, right = ["7", "7", "8", "8", "9"], [True, True, False, False, False]
    orders = list(permutations(range(5)))
    means = [majority_at_k([answers[i] for i in o], [right[i] for i in o], 2) for o in orders]
    subsets = list(combinations(range(5), 2))
    groups = [majority_at_k([answers[i] for i in s], [right[i] for i in s], 2) for s in subsets]
    assert np.mean(means) == pytest.approx(np.mean(groups))


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 10), (450, 1319), (1, 1)])
def test_wilson_is_the_formula_of_its_docstring(successes, n):
    z2, p = stats.norm.ppf(0.975) ** 2, successes / n
    half = math.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    expected = [(p + z2 / (2 * n) + sign * half) / (1 + z2 / n) for sign in (-1, 1)]
    assert wilson(successes, n) == pytest.approx(expected, abs=1e-12)


def test_the_bootstrap_of_one_prompt_has_no_width():
    assert bootstrap(np.array([2.5])) == (2.5, 2.5)


def test_the_bootstrap_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(7)
    samples = rng.exponential(size=(200, 80))
    covered = sum(low <= 1.0 <= high for low, high in map(bootstrap, samples))
    assert covered / 200 > 0.88


def test_the_bootstrap_is_close_to_the_normal_interval_and_always_the_same():
    values = np.random.default_rng(0).normal(size=3000)
    low, high = bootstrap(values)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    assert bootstrap(values) == (low, high)


def test_the_interval_of_a_share_is_wilsons_and_prompts_without_a_value_are_left_out():
    found = estimate(np.array([1.0, 0.0, math.nan, 1.0]), (0, 1))
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(2 / 3), 3)
    assert (found.low, found.high) == wilson(2, 3)
    assert estimate(np.array([math.nan])) is None
    other = estimate(np.array([0.5, 0.0]))
    assert other is not None
    assert (other.low, other.high) == bootstrap(np.array([0.5, 0.0]))
