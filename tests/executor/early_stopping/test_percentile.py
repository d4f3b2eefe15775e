"""Optuna's pruner, asked with curves as our rules are."""

import pytest

from dovetail_executor.early_stopping.percentile import percentile

OTHERS = [[(10, 0.0), (20, end)] for end in (0.1, 0.3, 0.5, 0.7)]


@pytest.mark.parametrize(("value", "share", "stops"), [(0.4, 25, True), (0.4, 75, False), (0.8, 25, False)])
def test_a_trial_that_is_not_among_the_best_is_stopped(value, share, stops):
    pytest.importorskip("optuna")
    assert percentile([(10, 0.05), (20, value)], OTHERS, percentile=share) is stops


def test_it_waits_for_its_time_and_for_others():
    pytest.importorskip("optuna")
    assert not percentile([(10, -1.0)], OTHERS, grace=10)
    assert not percentile([(20, -1.0)], OTHERS[:2])


def test_others_that_have_diverged_are_left_out():
    pytest.importorskip("optuna")
    diverged = [[(10, 0.0), (20, float("-inf"))]] * 5
    assert percentile([(10, 0.05), (20, 0.4)], OTHERS + diverged)
    assert not percentile([(10, 0.05), (20, 0.8)], OTHERS + diverged)
