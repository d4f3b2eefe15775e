"""When a change of a guard counts, and when it is red."""

import pytest

from dovetail_lab.ab.guards import GUARDS, Guard, judge
from dovetail_lab.ab.paired import Interval

LENGTH = Guard(label="length", metrics=("x",), tolerance=0.1)
STEP = Guard(label="step", metrics=("x",), tolerance=0.25, bad="either")
SHARE = Guard(label="share", metrics=("x",), tolerance=0.1, at_least=0.01)


@pytest.mark.parametrize(
    ("guard", "control", "difference", "interval", "verdict", "sign"),
    [
        (LENGTH, 10.0, 3.0, (2.0, 4.0), "better", "red"),
        (LENGTH, 10.0, 3.0, (-1.0, 7.0), "better", "same"),  # not sure
        (LENGTH, 10.0, 0.5, (0.4, 0.6), "better", "same"),  # within the tolerance
        (LENGTH, 10.0, 3.0, (2.0, 4.0), "undecided", "changed"),  # nothing is won by it
        (LENGTH, 10.0, -3.0, (-4.0, -2.0), "better", "changed"),  # a win with less
        (STEP, 1.0, -0.5, (-0.6, -0.4), "better", "red"),
        (STEP, 1.0, 15.0, (14.0, 16.0), "worse", "changed"),
        (SHARE, 0.001, 0.004, (0.003, 0.005), "better", "same"),  # five times nothing is nothing
        (SHARE, 0.0, 0.02, (0.01, 0.03), "better", "red"),
        (LENGTH, -2.0, 1.0, (0.5, 1.5), "better", "red"),
    ],
)
def test_signs(guard, control, difference, interval, verdict, sign):
    assert judge(guard, control, difference, Interval(*interval), verdict) == sign


def test_every_guard_has_its_own_name():
    assert len({guard.label for guard in GUARDS}) == len(GUARDS)
