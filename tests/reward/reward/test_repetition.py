"""`repetition` counts the n-grams that a completion has more than once."""

import pytest

from dovetail_reward.reward.repetition import repetition


def of(ids, ngram):
    return repetition([ids], ngram=ngram)[0]


@pytest.mark.parametrize(
    ("ids", "ngram", "penalty"),
    [
        ([1, 2, 3, 4, 5, 6], 3, 0.0),
        ([1, 2, 3, 1, 2, 3], 3, 3 / 4 - 1),  # 123, 231, 312, 123
        ([7] * 10, 3, 1 / 8 - 1),
        ([1, 2, 1, 2, 1, 2], 1, 2 / 6 - 1),
        ([1, 2, 3, 1, 2, 3], 6, 0.0),
        ([1, 1], 3, 0.0),
        ([], 1, 0.0),
    ],
)
def test_cases_computed_by_hand(ids, ngram, penalty):
    assert of(ids, ngram) == pytest.approx(penalty, abs=1e-12)


def test_a_loop_is_penalised_the_more_the_longer_it_is():
    penalties = [of(list(range(50)) * times, 20) for times in (1, 2, 4, 100)]
    assert penalties[0] == 0.0
    assert penalties == sorted(penalties, reverse=True)
    assert -1 < penalties[-1] < -0.98


def test_completions_do_not_depend_on_each_other():
    rows = [[1, 1, 1, 1], [1, 2, 3, 4], []]
    assert repetition(rows, ngram=2) == [of(row, 2) for row in rows] == [1 / 3 - 1, 0.0, 0.0]
    assert repetition([]) == []


def test_the_example_of_trl():
    assert repetition([[1, 2, 3, 4], [5, 5, 5, 5, 5]], ngram=2) == [0.0, -0.75]
