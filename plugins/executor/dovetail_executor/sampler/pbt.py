"""Population-based training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import attrs
from annotated_types import Ge, Gt, Interval

from dovetail.errors import ConfigError
from dovetail_lab.kinds import Proposal, Result
from dovetail_lab.sweep import Distribution
from dovetail_lab.sweep.distributions import round_number, uniform01

TRIES = 100
"""How often a perturbation is made again that comes to a setting which there has been."""


@attrs.frozen(kw_only=True)
class Pbt:
    """Population-based training: every so many steps, the worst go on from the weights of the best, with other numbers.

    A sweep's draws are the members. After every interval,
    1. *exploit*: each of the worst ⌊q·n⌋ members ends; a run begins with the weights, the optimiser and the place in
       the data of one of the best ⌊q·n⌋, drawn at random;
    2. *explore*: each of its values is drawn anew with probability r, and else is multiplied or divided by the factor;
       a choice moves to the option beside it.

    A member whose run has failed ends likewise. All members wait for the last one of an interval, and every draw comes
    from a counter, so the same members come out however many run at a time, killed and resumed or not. A run that is
    not replaced is the run that `dovetail train` makes. Jaderberg et al. 2017, *Population Based Training of Neural
    Networks*, section 4 (truncation selection).

    Args:
        interval: steps between two looks, a multiple of `run.checkpoint_every`. Each needs a value of the metric.
        quantile: q, at most one half.
        factor: by which numbers are perturbed.
        resample: r.
    """

    learns: ClassVar[bool] = True

    interval: Annotated[int, Ge(1)] = 20
    quantile: Annotated[float, Interval(gt=0, le=0.5)] = 0.25
    factor: Annotated[float, Gt(1)] = 1.2
    resample: Annotated[float, Interval(ge=0, le=1)] = 0.25

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> Population:
        """Begin with random members.

        Raises:
            ConfigError: if nobody could be replaced.
        """
        if math.floor(self.quantile * draws) < 1:
            least = math.ceil(1 / self.quantile)
            raise ConfigError(
                f"sampler 'pbt': of {draws} members, a share of {self.quantile:g} is none; draw {least} or more"
            )
        if self.interval >= total_steps:
            raise ConfigError(
                f"sampler.pbt.interval = {self.interval} is not below train.steps = {total_steps}: nobody would be"
                " replaced"
            )
        return Population(rules=self, space=space, size=draws, seed=seed, total_steps=total_steps)


@attrs.frozen(kw_only=True)
class Member:
    """A run of the population: the number of its last proposal, and what it was begun with."""

    number: int
    values: Mapping[str, Any]
    seed: int


@attrs.define(kw_only=True)
class Population:
    """An open study. Within an interval those that copy come before those that go on, whose weights they need.

    Attributes:
        rules: the sampler.
        space: key -> distribution.
        size: n.
        seed: of the counters.
        total_steps: of a run.
        members: those of the present interval.
        results: of the present interval, by number.
        known: the (seed, values) of every run so far.
    """

    rules: Pbt
    space: Mapping[str, Distribution]
    size: int
    seed: int
    total_steps: int
    members: list[Member] = attrs.field(factory=list)
    results: dict[int, Result] = attrs.field(factory=dict)
    known: set[tuple[int, str]] = attrs.field(factory=set)
    _proposals: Iterator[Proposal] | None = None
    _round: int = 0
    _asked: int = 0

    def ask(self) -> Proposal | None:
        """Return the next member of this interval, or of the next one once all results are there."""
        if self._proposals is None:
            self._proposals = self._first()
        proposal = next(self._proposals, None)
        if proposal is None and self._is_complete():
            self._round += 1
            self._proposals = self._next()
            proposal = next(self._proposals, None)
        return proposal

    def tell(self, number: int, result: Result) -> None:
        """Take the result of a member."""
        self.results[number] = result

    def _is_complete(self) -> bool:
        return self._until() is not None and all(member.number in self.results for member in self.members)

    def _until(self) -> int | None:
        step = (self._round + 1) * self.rules.interval
        return step if step < self.total_steps else None

    def _first(self) -> Iterator[Proposal]:
        for index in range(self.size):
            values = {key: form.draw(self.seed, key, index) for key, form in self.space.items()}
            yield self._propose(values, index)

    def _propose(self, values: Mapping[str, Any], seed: int, **others: Any) -> Proposal:
        self.members.append(Member(number=self._asked, values=values, seed=seed))
        self.known.add((seed, repr(sorted(values.items()))))
        self._asked += 1
        return Proposal(values=values, seed=seed, until=self._until(), **others)

    def _next(self) -> Iterator[Proposal]:
        """The members of the next interval: first those that begin with a copy."""
        ranked, self.members = sorted(self.members, key=self._rank), []
        alive = [member for member in ranked if self.results[member.number].curve]
        count = math.floor(self.rules.quantile * len(ranked))
        losers = [member for place, member in enumerate(ranked) if place >= len(ranked) - count or member not in alive]
        best = [member for member in alive if member not in losers][:count]
        going_on = [member for member in ranked if member not in losers]
        for member in losers if best else []:
            parent = best[int(len(best) * self._share("parent", member.number))]
            values = self._explored(parent, member.number)
            if values is not None:
                yield self._propose(values, parent.seed, copies=parent.number, instead_of=member.number)
            elif member in alive:
                going_on.append(member)
        for member in going_on:
            yield self._propose(member.values, member.seed, goes_on_with=member.number)

    def _rank(self, member: Member) -> tuple[float, bool, int]:
        """The best first; of equal ones, the earlier; those that have failed, of which nothing can be copied, last."""
        result = self.results[member.number]
        return (math.inf if result.value is None else -result.value, not result.curve, member.number)

    def _share(self, what: str, number: int) -> float:
        return uniform01(self.seed, f"pbt {what}", number)

    def _explored(self, parent: Member, number: int) -> dict[str, Any] | None:
        """Values beside the parent's that no run of its seed has had; None if there are none."""
        for attempt in range(TRIES):
            values = {
                key: self._perturbed(key, form, parent.values[key], number * TRIES + attempt)
                for key, form in self.space.items()
            }
            if (parent.seed, repr(sorted(values.items()))) not in self.known:
                return values
        return None

    def _perturbed(self, key: str, form: Distribution, value: Any, index: int) -> Any:
        if self._share(f"resample {key}", index) < self.rules.resample:
            return form.at(self._share(f"value {key}", index))
        up = self._share(f"direction {key}", index) < 0.5
        if form.form == "choice":
            place = form.arguments.index(value) + (1 if up else -1)
            return form.arguments[min(max(place, 0), len(form.arguments) - 1)]
        low, high = form.arguments
        moved = min(max(value * self.rules.factor if up else value / self.rules.factor, low), high)
        if form.form == "int":
            # a small number is not left where it is by rounding
            moved = round(moved) if round(moved) != value else value + (1 if up else -1)
            return min(max(moved, low), high)
        return round_number(moved)
