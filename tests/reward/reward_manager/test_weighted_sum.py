"""Reward manager `weighted_sum`."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail
from dovetail_reward.reward_manager.weighted_sum import WeightedSum

NAMES = ("check_answer", "match_format_exactly")
TABLE = np.array([[3.0, 1.0], [np.nan, 1.0], [-0.5, np.nan], [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("weights", "scores"),
    [
        (None, [4.0, 1.0, -0.5, np.nan]),
        ({}, [4.0, 1.0, -0.5, np.nan]),
        ({"check_answer": 2.0}, [7.0, 1.0, -1.0, np.nan]),
        ({"check_answer": 2.0, "match_format_exactly": -1.0}, [5.0, -1.0, -1.0, np.nan]),
        ({"match_format_exactly": 0.0}, [3.0, 0.0, -0.5, np.nan]),
    ],
)
def test_by_hand(weights, scores):
    np.testing.assert_array_equal(WeightedSum(weights=weights)(TABLE, NAMES), scores)


def test_float64_and_one_score_per_row():
    scores = WeightedSum()(TABLE[:, :1], NAMES[:1])
    assert scores.shape == (4,)
    assert scores.dtype == np.float64
    assert WeightedSum()(TABLE[:0], NAMES).shape == (0,)


def test_a_weight_for_no_reward_is_refused_with_the_nearest_name():
    with pytest.raises(dovetail.DovetailError) as caught:
        WeightedSum(weights={"chek_answer": 1.0})(TABLE, NAMES)
    assert str(caught.value) == (
        "reward_manager.weighted_sum.weights names 'chek_answer', which is not a reward of this run."
        " Did you mean 'check_answer'? Rewards: check_answer, match_format_exactly"
    )


def test_interface():
    component = dovetail.get("reward_manager", "weighted_sum")
    assert component.reads == ("score_table", "reward_names")
    assert dict(component.params) == {"weights": None}
