"""The order of the sampler's tasks: evaluations and batches, each with the version of its weights.

The version of weights is the number of updates so far. With staleness k, batch n is sampled with version max(0, n - k),
whichever of the two programs is faster. An evaluation precedes all other tasks with the same weights.

Nothing is sampled ahead of a run's end. If the run is extended later, version `end` therefore samples batches
`end`, ..., `end + k`, as version 0 does at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import attrs


class Task(NamedTuple):
    """A task with the weights of a version: to sample the batch of a step or, if `batch` is None, to evaluate."""

    version: int
    batch: int | None


def tasks(steps: int, staleness: int, evaluates: Callable[[int], bool], ends: tuple[int, ...] = ()) -> tuple[Task, ...]:
    """Return all tasks of a run in order.

    Args:
        steps: the number of batches.
        staleness: k.
        evaluates: tells whether a version of the weights is evaluated.
        ends: the numbers of steps that the run had before it was extended.

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
        first = version if version in (0, *ends) else version + staleness
        end = min((each for each in (*ends, steps) if each > version), default=steps)
        found += [Task(version, batch) for batch in range(first, min(version + staleness + 1, end))]
    return tuple(found)


@attrs.define(kw_only=True)
class InOrder:
    """The trainer's position in the order of the tasks; each form of its end of the channels has one.

    Attributes:
        tasks: all tasks of the sampler's program in this run.
        taken: number of messages that the trainer has taken.
    """

    tasks: tuple[Task, ...]
    taken: int

    @property
    def next(self) -> Task | None:
        """Return the task of the next message; None after the last one."""
        return self.tasks[self.taken] if self.taken < len(self.tasks) else None
