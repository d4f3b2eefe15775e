"""Broken sizings: choices that cannot be computed, and choices that change."""

from __future__ import annotations

from typing import ClassVar

import attrs
from flax import nnx
from tests.kit.conformance.mutants import caught_by

from dovetail.protocols import Settled


@attrs.frozen(kw_only=True)
class _Whole:
    """A sizing that computes a whole mini-batch at once; what is below breaks one thing."""

    def update(self, config, algorithm, models, devices):
        return self.settled(algorithm.sizes.micro_batch_size, models)

    def settled(self, rows, models):
        graphdef, weights = models.shapes()
        return Settled(mode=nnx.merge(graphdef, *weights).modes[0], micro_batch_size=rows, positions=None)

    def warm_start(self, config, graphdef, weights, devices):
        return config.sft.batch_size


@caught_by("sizing", "can_be_computed")
@attrs.frozen(kw_only=True)
class MakesUpAMode(_Whole):
    def settled(self, rows, models):
        return Settled(mode="fastest", micro_batch_size=rows, positions=None)


@caught_by("sizing", "can_be_computed")
@attrs.frozen(kw_only=True)
class IgnoresWhatIsSet(_Whole):
    def update(self, config, algorithm, models, devices):
        return self.settled(algorithm.sizes.mini_batch_size, models)


@caught_by("sizing", "can_be_computed")
@attrs.frozen(kw_only=True)
class SplitsGroups(_Whole):
    def update(self, config, algorithm, models, devices):
        return self.settled(config.train.micro_batch_size or 2, models)


@caught_by("sizing", "chooses_alike")
@attrs.frozen(kw_only=True)
class TakesTurns(_Whole):
    calls: ClassVar[list[int]] = []

    def update(self, config, algorithm, models, devices):
        self.calls.append(1)
        return self.settled(config.train.micro_batch_size or 4 * (1 + len(self.calls) % 3), models)


@caught_by("sizing", "sizes_a_warm_start")
@attrs.frozen(kw_only=True)
class ManyAtATime(_Whole):
    def warm_start(self, config, graphdef, weights, devices):
        return 32
