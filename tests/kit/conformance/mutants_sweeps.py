"""Broken samplers."""

from __future__ import annotations

import math
import random
from typing import Any, ClassVar

import attrs
from tests.kit.conformance.mutants import caught_by, right

from dovetail_executor.sampler.random import Drawn
from dovetail_lab.kinds import Proposal
from dovetail_lab.sweep import Distribution
from dovetail_lab.sweep.distributions import round_number


@attrs.frozen(kw_only=True)
class _Draws:
    """Independent draws; what is below breaks one thing."""

    learns: ClassVar[bool] = False

    def open(self, space, *, draws, seed, total_steps):
        return Drawn([self.values(space, draws, seed, index) for index in range(self.many(draws))])

    def many(self, draws):
        return draws

    def values(self, space, draws, seed, index):
        return {key: form.draw(seed, key, index) for key, form in space.items()}


@caught_by("sampler", "replays")
class DrawsFromTheProcess(_Draws):
    def values(self, space, draws, seed, index):
        return {key: form.at(random.random()) for key, form in space.items()}


@caught_by("sampler", "replays")
class HasOneSeed(_Draws):
    def values(self, space, draws, seed, index):
        return super().values(space, draws, 0, index)


@caught_by("sampler", "stays_in_the_space")
class LeavesTheRange(_Draws):
    def values(self, space, draws, seed, index):
        return {key: 10 * value for key, value in super().values(space, draws, seed, index).items()}


@caught_by("sampler", "stays_in_the_space")
class NeverEnds(_Draws):
    def many(self, draws):
        return 2 * draws


@caught_by("sampler", "begins_alike")
class DrawsFromTheEnd(_Draws):
    def values(self, space, draws, seed, index):
        return super().values(space, draws, seed, draws - index)


@caught_by("sampler", "tries_other_settings")
class EachOneTwice(_Draws):
    def values(self, space, draws, seed, index):
        return super().values(space, draws, seed, index // 2)


@caught_by("sampler", "tries_other_settings")
class OneNumberForAllKeys(_Draws):
    def values(self, space, draws, seed, index):
        return {key: form.draw(seed, "any", index) for key, form in space.items()}


@caught_by("sampler", "draws_rates_by_their_logarithm")
class DrawsEvenly(_Draws):
    def values(self, space, draws, seed, index):
        return {key: Distribution("uniform", form.arguments).draw(seed, key, index) for key, form in space.items()}


@attrs.frozen(kw_only=True)
class _Climbs(_Draws):
    """Goes halfway from the best setting so far to a random one; what is below breaks one thing."""

    learns: ClassVar[bool] = True

    def open(self, space, *, draws, seed, total_steps):
        settings = super().open(space, draws=draws, seed=seed, total_steps=total_steps)
        return _Climbing(settings=settings, better=self.better)

    def better(self, value, best):
        return value is not None and value > best


@attrs.define(kw_only=True)
class _Climbing:
    settings: Any
    better: Any
    asked: list[Any] = attrs.field(factory=list)
    best: Any = -math.inf
    at: Any = None

    def ask(self):
        fresh = self.settings.ask()
        if fresh is None:
            return None
        rates = [values["train.lr"] for values in (self.at or fresh.values, fresh.values)]
        self.asked.append({**fresh.values, "train.lr": round_number(math.sqrt(math.prod(rates)))})
        return Proposal(values=self.asked[-1])

    def tell(self, number, result):
        if self.better(result.value, self.best):
            self.best, self.at = result.value, self.asked[number]


@caught_by("sampler", "goes_on_after_failures", raises="TypeError")
class ComparesWithAFailure(_Climbs):
    def better(self, value, best):
        return best == -math.inf or (value is not None and value > best)


@caught_by("sampler", "learns_after_a_failure", slow=True)
class NothingBeatsAFailure(_Climbs):
    def better(self, value, best):
        return best is not None and (value is None or value > best)


right("sampler")(_Climbs)
