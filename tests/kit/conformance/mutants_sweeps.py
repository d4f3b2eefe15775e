"""Broken samplers."""

from __future__ import annotations

import random
from typing import ClassVar

import attrs
from tests.kit.conformance.mutants import caught_by

from dovetail_executor.sampler.random import Drawn
from dovetail_lab.sweep import Distribution


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
