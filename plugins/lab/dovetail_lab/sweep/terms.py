"""What a driver of trials is given: its terms, whom it tells, and what chooses the trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from dovetail.errors import DovetailError
from dovetail_lab.sweep.state import State, Status
from dovetail_lab.sweep.trial import Trial


class Watch(Protocol):
    """Shows a sweep while it is driven."""

    def say(self, text: str, log: Sequence[str] = ()) -> None:
        """Tell of something that happened now, with the end of the log where a trial failed."""
        ...

    def look(self, states: Mapping[Trial, State]) -> None:
        """Show how things stand; called about twice a second."""
        ...

    def close(self) -> None:
        """Show no more."""
        ...


class Source(Protocol):
    """What chooses the trials while a sweep is driven."""

    def resume(self) -> None:
        """Take up what the sweep's folder has; called once, when the sweep is held."""
        ...

    def more(self, at_hand: Collection[Trial], room: int) -> Sequence[Trial]:
        """Return trials to run now: about as many as there is room for, none before others have ended, or none at all.

        Args:
            at_hand: the trials that wait, run or are run elsewhere; all others of the sweep have ended or paused.
            room: how many workers could take.
        """
        ...


@attrs.frozen(kw_only=True)
class Terms:
    """How trials are driven.

    Attributes:
        jobs: trials, or populations, at a time.
        population: trials of one group that are trained together.
        retry: how often a trial that failed, hung or lost its process is begun again, from its checkpoint.
        timeout: seconds that an attempt may take, the start of its process not counted.
        fail_fast: end the sweep when a trial has failed for good.
        in_order: take the trials strictly in their order, and never prefer one that shares what is compiled.
    """

    jobs: int = 1
    population: int = 1
    retry: int = 0
    timeout: float = math.inf
    fail_fast: bool = False
    in_order: bool = False


class TrialFailed(DovetailError):
    """A trial has failed, and the sweep was to end with the first that does."""


class Quiet:
    """A watch that prints what happens and nothing else, for scripts and tests."""

    def __init__(self, print_line: Callable[[str], None] = print) -> None:
        self._print = print_line

    def say(self, text: str, log: Sequence[str] = ()) -> None:
        """Print it."""
        self._print(text)

    def look(self, states: Mapping[Trial, State]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


def count(statuses: Iterable[Status]) -> str:
    """Say how many there are of each status.

    >>> count(["done", "failed", "done"])
    '2 done, 1 failed'
    """
    return ", ".join(f"{number} {status}" for status, number in Counter(statuses).most_common())
