"""A reward that runs in a pool: its completions are split between workers, and the results put together in order."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, Protocol

import attrs
import numpy as np

from dovetail.errors import ConfigError, DovetailError, RewardError
from dovetail.registry import Component
from dovetail.registry.one_file import files
from dovetail.registry.places import raised_in
from dovetail_kit.workers import LATE, LOST, CallError, Packed, Workers

Failed = Literal["error", "abstain"] | float
"""What becomes of completions without a result: an error that ends the run, an abstention, or a score."""


class _Pool(Protocol):
    """A pool as `around` needs it."""

    @property
    def seconds(self) -> float: ...

    @property
    def rows(self) -> int: ...

    @property
    def failed(self) -> Failed: ...

    def open(self, function: Callable[..., Any], what: str) -> Workers: ...


def around(component: Component, built: Callable[..., Any], pool: _Pool) -> Pooled:
    """Return a reward that runs in a pool, for a pool with the settings `rows` and `failed`.

    Raises:
        ConfigError: if the reward computes on the devices of the run, or cannot be sent to another process.
    """
    if component.declares.get("placed"):
        raise ConfigError(
            f"{component.label}.pool: this reward computes on the devices of the run, so it stays in the trainer's"
            f" process; {component.kind}/mesh places it"
        )
    calls = pool.open(Scoring(built, component.load()), component.label)
    return Pooled(component=component, built=built, pool=pool, workers=calls)


def packed(function: Callable[..., Any], what: str, setting: str) -> Packed:
    """Return a function as it is sent to workers.

    Raises:
        ConfigError: if it cannot be pickled.
    """
    try:
        return Packed.of(function, tuple(str(file) for file in files() if file.stem in sys.modules))
    except Exception as error:
        raise ConfigError(f"{what} cannot run in {setting}: it cannot be sent to another process ({error})") from error


@attrs.frozen
class Broken:
    """A description of an exception: what it says, and the author's line."""

    said: str
    place: str


@attrs.frozen
class Scoring:
    """The worker's side: calls the reward, and returns what can be sent back."""

    function: Callable[..., Any]
    target: Callable[..., Any]

    def __call__(self, *given: Sequence[Any]) -> tuple[Any, Mapping[str, Any]] | Broken:
        """Return scores and metrics, or what was raised."""
        try:
            result = self.function(*given)
            metrics: Mapping[str, Any] = {}
            if isinstance(result, tuple) and result and isinstance(result[-1], dict):
                result, metrics = result[0] if len(result) == 2 else result[:-1], result[-1]
            if not isinstance(result, str | bytes | Mapping | Set):  # the engine refuses these
                result = list(itertools.islice(result, len(given[0]) + 1))
        except DovetailError as error:
            return Broken(str(error), "")
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return Broken(said, raised_in(self.target, error) or " ")
        return result, metrics


@attrs.frozen(kw_only=True, eq=False)
class Pooled:
    """The trainer's side; it is called as the reward itself is.

    Attributes:
        component: the reward.
        built: the reward with its hyperparameters set.
        pool: its settings `seconds`, `rows` and `failed`.
        workers: what calls the reward.
    """

    component: Component
    built: Any
    pool: _Pool
    workers: Workers

    @property
    def columns(self) -> Sequence[str]:
        """The dataset columns that the reward reads from whole records."""
        return getattr(self.built, "columns", ())

    def __call__(self, *given: Sequence[Any]) -> Any:
        """Return the scores and metrics that the reward returns for these arguments.

        Raises:
            RewardError: if a worker raises an exception; or if there is no result and `failed` is `error`.
        """
        if not len(given[0]):
            return self.built(*given)
        cuts = self._cuts(given)
        calls = [[list(column[first:last]) for column in given] for first, last in itertools.pairwise(cuts)]
        try:
            found = self.workers.map(calls, time_limit=self.pool.seconds, until=self._ends_all)
        except CallError as error:
            raise RewardError(f"{self.component.label} cannot run in its pool: {error}") from error
        scores: list[Any] = []
        metrics: dict[str, np.ndarray] = {}
        for call, result, first in zip(calls, found, cuts, strict=False):
            values, more = self._of(call, result)
            if isinstance(values, str | bytes | Mapping | Set):
                return values, dict(more)
            if len(values) != len(call[0]):
                raise RewardError(
                    f"reward {self.component.name} returned {len(values)} scores for {len(call[0])} completions"
                )
            scores += values
            for name, value in more.items():
                column = metrics.setdefault(name, np.full(len(given[0]), np.nan))
                column[first : first + len(values)] = _metric(value, f"{self.component.name}/{name}", len(values))
        return scores, metrics

    def _ends_all(self, result: Any) -> bool:
        """Whether a result is an error of the whole: the calls that have not begun need not be waited for."""
        return isinstance(result, Broken) or (self.pool.failed == "error" and result in (LATE, LOST))

    def _cuts(self, given: Sequence[Sequence[Any]]) -> list[int]:
        """Return where calls begin, and the end: after `rows` completions, or the rest of a group that is compared."""
        size = len(given[0])
        starts = range(size)
        if "group_ids" in self.component.reads:
            ids = given[self.component.reads.index("group_ids")]
            starts = [row for row in range(size) if row == 0 or ids[row] != ids[row - 1]]
        cuts = [0]
        for row in starts:
            if row - cuts[-1] >= self.pool.rows:
                cuts.append(row)
        return [*cuts, size]

    def _of(self, call: Sequence[Sequence[Any]], result: Any) -> tuple[Any, Mapping[str, Any]]:
        name, rows = self.component.name, len(call[0])
        completion = repr(str(call[0][0])[:80])
        if isinstance(result, Broken):
            if not result.place:
                raise RewardError(result.said)
            raise RewardError(
                f"reward {name} ({self.component.origin}) raised {result.said}; first completion:"
                f" {completion}{result.place.rstrip()}"
            )
        if result not in (LATE, LOST):
            return (result[0], result[1] | {"unscored": 0.0}) if self.pool.failed != "error" else result
        if self.pool.failed == "error":
            why = f"took longer than {self.pool.seconds:g} s" if result is LATE else "ended its process twice"
            raise RewardError(
                f"reward {name} {why} on the completion {completion}; to go on in such a case, set `failed` of its pool"
                " to 'abstain' or to a score"
            )
        return [None if self.pool.failed == "abstain" else self.pool.failed] * rows, {"unscored": 1.0}


def _metric(value: Any, name: str, rows: int) -> np.ndarray:
    from dovetail.host.rewards import metric  # imports jax, which a worker does not need

    return metric(value, name, rows)
