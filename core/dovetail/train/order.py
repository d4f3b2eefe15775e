"""What the sampler's program does, one thing after another: evaluations, and batches, each with its weights.

Weights are counted by the updates behind them. With the staleness k, batch n is drawn with the weights max(0, n - k),
whichever of the two programs is faster; and weights are evaluated before anything else is done with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Task(NamedTuple):
    """One thing to do with the weights of a version: to draw the batch of a step, or, without one, to evaluate."""

    version: int
    batch: int | None


def tasks(steps: int, staleness: int, evaluates: Callable[[int], bool]) -> tuple[Task, ...]:
    """Return all tasks of a run in order; `evaluates` tells whether the weights of a version are to be evaluated.

    >>> for task in tasks(3, 1, lambda version: version == 3):
    ...     print(task)
    Task(version=0, batch=0)
    Task(version=0, batch=1)
    Task(version=1, batch=2)
    Task(version=3, batch=None)
    """
    found = []
    for version in range(steps + 1):
        if evaluates(version):
            found.append(Task(version, None))
        first = version + staleness if version else 0
        found += [Task(version, batch) for batch in range(first, min(version + staleness + 1, steps))]
    return tuple(found)
