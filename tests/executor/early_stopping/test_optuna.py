"""Optuna's pruners, asked with curves as our rules are."""

import itertools
import math

import pytest

from dovetail.errors import ConfigError
from dovetail_executor.early_stopping.hyperband import _bracket, hyperband
from dovetail_executor.early_stopping.patient import patient
from dovetail_executor.early_stopping.percentile import percentile
from dovetail_executor.early_stopping.threshold import threshold

pytest.importorskip("optuna")

OTHERS = [[(10, 0.0), (20, end)] for end in (0.1, 0.3, 0.5, 0.7)]


@pytest.mark.parametrize(("value", "share", "stops"), [(0.4, 25, True), (0.4, 75, False), (0.8, 25, False)])
def test_a_trial_that_is_not_among_the_best_is_stopped(value, share, stops):
    assert percentile([(10, 0.05), (20, value)], OTHERS, percentile=share) is stops


def test_it_waits_for_its_time_and_for_others():
    assert not percentile([(10, -1.0)], OTHERS, grace=10)
    assert not percentile([(20, -1.0)], OTHERS[:2])


def test_others_that_have_diverged_are_left_out():
    diverged = [[(10, 0.0), (20, float("-inf"))]] * 5
    assert percentile([(10, 0.05), (20, 0.4)], OTHERS + diverged)
    assert not percentile([(10, 0.05), (20, 0.8)], OTHERS + diverged)


@pytest.mark.parametrize(("value", "stops"), [(0.05, True), (0.2, False), (0.95, True), (-math.inf, True)])
def test_a_value_out_of_bounds_is_stopped(value, stops):
    assert threshold([(10, 0.0), (20, value)], lower=0.1, upper=0.9) is stops


def test_without_bounds_only_what_has_diverged_is_stopped_after_the_grace():
    assert not threshold([(20, -1e9)])
    assert threshold([(20, -math.inf)])
    assert not threshold([(10, -math.inf)], grace=10)
    with pytest.raises(ConfigError, match=r"lower = 0\.9 exceeds upper = 0\.1"):
        threshold([(20, 0.5)], lower=0.9, upper=0.1)


def test_a_trial_that_has_fallen_is_stopped_once_its_patience_is_over():
    falls = [(10 * i, value) for i, value in enumerate((0.1, 0.5, 0.4, 0.45, 0.3))]
    assert [patient(falls[:end], patience=2) for end in range(1, 6)] == [False] * 4 + [True]
    assert not patient(falls, patience=2, min_delta=0.1)
    assert not patient([*falls, (50, 0.6)], patience=2)


def test_a_trial_that_has_diverged_is_out_of_patience():
    nowhere = -math.inf
    assert patient([(0, 0.1), (10, 0.5), (20, nowhere), (30, nowhere)], patience=1)
    assert not patient([(0, nowhere), (10, 0.1), (20, 0.2), (30, 0.3)], patience=1)


def linear(slope: float) -> list[tuple[int, float]]:
    return [(step, slope * step) for step in range(0, 91, 10)]


TRIALS = [linear(0.01 * slope) for slope in range(60)]
BRACKETS = [_bracket(trial, 3, 3) for trial in TRIALS]


def test_brackets_have_their_shares():
    counts = [BRACKETS.count(bracket) for bracket in range(3)]
    assert counts == sorted(counts, reverse=True)
    assert counts[2] > 0
    assert _bracket([(0, 0.5)], 3, 3) is None


@pytest.mark.parametrize("bracket", range(3))
def test_a_bracket_is_judged_at_its_rungs_and_keeps_its_best_third(bracket):
    own = [trial for trial, drawn in zip(TRIALS, BRACKETS, strict=True) if drawn == bracket]
    kept = []
    for trial in own:
        others = [other for other in TRIALS if other is not trial]
        stops = [hyperband(trial[:end], others, 100) for end in range(1, len(trial) + 1)]
        at = [step for (step, _), stop in zip(trial, stops, strict=True) if stop]
        assert set(at) <= {10 * 3**rung for rung in range(bracket, 3)}
        if 10 * 3**bracket not in at:
            kept.append(trial)
    assert kept == own[-max(1, len(own) // 3) :]


def test_the_order_of_the_others_and_other_brackets_change_nothing():
    trial, *others = TRIALS
    alone = [other for other in others if _bracket(other, 3, 3) == BRACKETS[0]]
    for some, end in itertools.product((others[::-1], alone), range(1, 11)):
        assert hyperband(trial[:end], some, 100) == hyperband(trial[:end], others, 100)


def test_a_trial_that_has_diverged_is_stopped_at_its_rung_and_judges_nobody():
    trial, bracket = TRIALS[5], BRACKETS[5]
    rung = 10 * 3**bracket
    diverged = [(step, value if step < rung else -math.inf) for step, value in trial if step <= rung]
    begun = diverged if bracket else [(10, -math.inf)]
    assert hyperband(begun, [], 100)
    assert not hyperband(trial[: trial.index((rung, trial[rung // 10][1])) + 1], [begun] * 5, 100)
