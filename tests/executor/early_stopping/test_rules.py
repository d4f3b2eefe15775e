"""The stopping rules: cases by hand, and decisions that they must never make."""

import pytest

from dovetail_executor.early_stopping.median import median
from dovetail_executor.early_stopping.successive_halving import successive_halving


def curve(*values: float, every: int = 10) -> list[tuple[int, float]]:
    return [(every * (i + 1), value) for i, value in enumerate(values)]


def test_median_compares_the_best_with_running_averages():
    # the averages at step 20 are 0.2, 0.4 and 0.6: the median is 0.4
    others = [curve(0.1, 0.3), curve(0.3, 0.5), curve(0.5, 0.7)]
    assert median(curve(0.3, 0.39), others)
    assert not median(curve(0.41, 0.0), others)
    assert not median(curve(0.1, 0.4), others)


def test_median_waits():
    others = [curve(0.9, 0.9)] * 3
    assert not median(curve(0.0), others, grace=10)
    assert median(curve(0.0), others, grace=9)
    assert not median(curve(0.0, 0.0), others[:2], grace=9)


def test_median_asks_only_those_that_have_come_so_far_and_looks_no_further():
    assert not median(curve(0.2, 0.2), [curve(0.9)] * 5)
    assert not median(curve(0.2, 0.2), [curve(0.1, 0.1, 0.9, 0.9)] * 5)


def test_median_leaves_out_those_that_have_no_value_yet():
    """Trials that are evaluated more rarely, as where a sweep varies `eval.every`, have no mean up to an early step."""
    rare = [[(50, 0.9)]] * 3
    assert not median([(10, 0.1), (20, 0.2)], rare)
    assert not median([(10, 0.1), (20, 0.2)], [*rare, curve(0.9, 0.9), curve(0.9, 0.9)])
    assert median([(10, 0.1), (20, 0.2)], [*rare, *[curve(0.9, 0.9)] * 3])


def test_median_never_stops_the_best():
    curves = [curve(*(0.1 * i for _ in range(4))) for i in range(7)]
    for i, each in enumerate(curves):
        others = curves[:i] + curves[i + 1 :]
        assert median(each, others) == (i < 3)


def test_halving_keeps_the_best_third_at_a_rung():
    # 27 steps, η = 3: rungs at steps 1, 3 and 9
    curves = [curve(value, every=9) for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]
    kept = [
        i
        for i, each in enumerate(curves)
        if not successive_halving(each, curves[:i] + curves[i + 1 :], 27, reduction=3, rungs=1)
    ]
    assert kept == [6, 7, 8]


def test_halving_lets_the_first_go_on():
    assert not successive_halving(curve(0.0, every=9), [], 27, rungs=1)
    assert not successive_halving(curve(0.5, every=9), [curve(0.4, every=9)], 27, rungs=1)


def test_halving_judges_once_at_each_rung():
    better = [curve(0.9, 0.9, every=9)] * 5
    assert successive_halving([(9, 0.1)], better, 27, rungs=1)
    assert not successive_halving([(9, 0.1), (18, 0.1)], better, 27, rungs=1)
    assert not successive_halving([(8, 0.1)], better, 27, rungs=1)


@pytest.mark.parametrize("rungs", [1, 2, 3])
def test_halving_has_its_rungs_at_powers(rungs):
    better = [[(step, 0.9) for step in range(1, 28)]] * 5
    judged = [
        s for s in range(1, 28) if successive_halving([(t, 0.1) for t in range(1, s + 1)], better, 27, rungs=rungs)
    ]
    assert judged == [1, 3, 9][-rungs:]
