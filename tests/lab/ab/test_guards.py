"""When a change of a guard counts, and when it is shown in red."""

import math

import numpy as np
import pytest

from dovetail_lab.ab.guards import GUARDS, Guard, change_of, judge

LENGTH = Guard(label="length", metrics=("x",), tolerance=0.1)
STEP = Guard(label="step", metrics=("x",), tolerance=0.25, bad="either")
SHARE = Guard(label="share", metrics=("x",), tolerance=0.1, at_least=0.01)


@pytest.mark.parametrize(
    ("guard", "control", "difference", "sure", "verdict", "sign"),
    [
        (LENGTH, 10.0, 3.0, True, "better", "red"),
        (LENGTH, 10.0, 3.0, False, "better", "same"),
        (LENGTH, 10.0, 0.5, True, "better", "same"),  # within the tolerance
        (LENGTH, 10.0, 3.0, True, "undecided", "changed"),  # nothing is won by it
        (LENGTH, 10.0, -3.0, True, "better", "changed"),  # a win with less
        (STEP, 1.0, -0.5, True, "better", "red"),
        (STEP, 1.0, 15.0, True, "worse", "changed"),
        (SHARE, 0.001, 0.004, True, "better", "same"),  # five times nothing is nothing
        (SHARE, 0.0, 0.02, True, "better", "red"),
        (LENGTH, -2.0, 1.0, True, "better", "red"),
    ],
)
def test_signs(guard, control, difference, sure, verdict, sign):
    assert judge(guard, control, difference, sure, verdict) == sign


def test_every_guard_has_its_own_name():
    assert len({guard.label for guard in GUARDS}) == len(GUARDS)


@pytest.mark.parametrize("variation", [0.2, 0.5])
def test_a_fair_win_is_rarely_flagged_by_any_guard(variation):
    """There are eight pairs and eleven guards, which differ only by chance, by a fifth or a half between runs."""
    rng, flagged = np.random.default_rng(0), 0
    for _ in range(250):
        runs = np.exp(rng.normal(0, variation, (len(GUARDS), 2, 8)))
        found = [change_of(control, arm, guards=len(GUARDS)) for control, arm in runs]
        signs = [judge(LENGTH, 1.0, each.difference, each.sure, "better") for each in found]
        flagged += "red" in signs
    assert flagged / 250 <= 0.05


def test_ratios_of_positive_quantities_have_positive_intervals():
    control = np.array([1.0, 9.0, 2.0, 6.0, 0.5, 8.0])
    found = change_of(control, np.array([0.2, 0.3, 4.0, 0.3, 0.4, 0.3]), guards=1)
    assert found.is_ratio
    assert 0 < found.interval.low < found.value < found.interval.high
    assert found.value == pytest.approx(math.exp(np.mean(np.log([0.2, 0.3 / 9, 2.0, 0.05, 0.8, 0.0375]))))
    assert found.sure == (found.interval.high < 1)


def test_what_may_be_zero_is_compared_by_its_difference():
    found = change_of(np.array([0.0, 0.01, 0.02]), np.array([0.01, 0.03, 0.02]), guards=1)
    assert not found.is_ratio
    assert found.value == pytest.approx(0.01)
    assert found.interval.low < 0 < found.interval.high
