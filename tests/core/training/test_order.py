"""The order of the sampler's tasks."""

from __future__ import annotations

import pytest

from dovetail.training.order import tasks


def even(version):
    return version % 2 == 0


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_tasks_of_a_run_begin_those_of_the_extended_one(staleness):
    short, extended = tasks(6, staleness, even), tasks(12, staleness, even, (6,))
    assert extended[: len(short)] == short
    assert sorted(task.batch for task in extended if task.batch is not None) == list(range(12))
    late = [task.version for task in extended if task.batch is not None and task.batch >= 6]
    assert late == [max(6, batch - staleness) for batch in range(6, 12)]


def test_with_synchronous_sampling_an_extended_run_is_one_in_one_piece():
    assert tasks(12, 0, even, (6, 8)) == tasks(12, 0, even)
