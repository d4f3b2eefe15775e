"""Reward `recorded` scores completions of the data by their place, and no others."""

import math

import numpy as np
import pytest

import dovetail
from dovetail.errors import ConfigError, DataError
from dovetail_reward.reward.recorded import Recorded

GIVEN, SAMPLED = [math.nan, math.nan], [-0.5, -0.1]


def test_places_are_counted_for_each_prompt_whatever_the_order_of_the_rows():
    rows = [GIVEN] * 5
    assert Recorded(scores=(3.0, 2.0, 1.0))(rows, [7, 2, 7, 2, 7], [{}] * 5) == [3.0, 3.0, 2.0, 2.0, 1.0]


def test_beyond_the_last_score_it_abstains():
    assert Recorded()([GIVEN] * 3, [0, 0, 0], [{}] * 3) == [1.0, 0.0, None]


def test_sampled_and_missing_completions_have_no_score_and_keep_their_place():
    assert Recorded()([SAMPLED, GIVEN, [], [math.nan, -0.1]], [0, 0, 1, 2], [{}] * 4) == [None, 0.0, None, None]


@pytest.mark.parametrize(
    ("value", "expected"), [([0.5, 2], [0.5, 2.0]), ((True, False), [1.0, 0.0])], ids=["numbers", "labels"]
)
def test_a_column_has_a_score_for_each_completion(value, expected):
    assert Recorded(scores_column="scores")([GIVEN] * 2, [0, 0], [{"scores": value}] * 2) == expected


@pytest.mark.parametrize(("value", "expected"), [(True, 1.0), (False, 0.0), (-0.5, -0.5), (np.int64(3), 3.0)])
def test_a_single_completion_may_have_a_single_score(value, expected):
    assert Recorded(scores_column="label")([GIVEN], [0], [{"label": value}]) == [expected]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0], "there are 1 scores for completion 2 of a prompt"),
        ([1.0, "x"], "the score of completion 2 of a prompt is 'x', no number"),
        ([1.0, None], "the score of completion 2 of a prompt is None, no number"),
        ([math.nan, 1.0], "the score of completion 1 of a prompt is nan, no number"),
        (None, "the score of completion 1 of a prompt is None, no number"),
        ("0.5", "the score of completion 1 of a prompt is '0.5', no number"),
    ],
)
def test_what_is_not_a_score_is_refused(value, words):
    with pytest.raises(DataError) as found:
        Recorded(scores_column="scores")([GIVEN] * 2, [0, 0], [{"scores": value}] * 2)
    assert str(found.value) == f"reward.recorded.scores_column = 'scores': {words}"


@pytest.mark.parametrize("scores", [(), (1.0, math.inf), (math.nan,)])
def test_scores_are_finite(scores):
    with pytest.raises(ConfigError, match="give finite numbers"):
        Recorded(scores=scores)


def test_it_is_found_by_name():
    assert dovetail.get("reward", "recorded").load() is Recorded
