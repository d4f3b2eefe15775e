"""Forward passes of models on separate devices, which run concurrently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dovetail.devices.compiled import share
from dovetail.devices.mesh import Devices
from dovetail.plan.compared import KEPT
from dovetail.plan.roles import INPUTS
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm
from dovetail.step.parts import Floats, Sums, merge
from dovetail.step.scoring import Scoring


@attrs.frozen(kw_only=True)
class Beside:
    """The passes of a step in which some models have their own devices.

    Each of these models has its own program, and all models on the policy's devices share one. All programs are
    dispatched before the first result is awaited, so that a reference, for example, scores while the policy does.

    Attributes:
        devices: the devices of the run.
        programs: by one of the roles of a program, all of its roles and their passes.
        reads: the fields that the models read.
    """

    devices: Devices
    programs: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]]
    reads: frozenset[str]

    @classmethod
    def of(cls, algorithm: Algorithm, graphdefs: Mapping[str, Any], devices: Devices) -> Beside | None:
        """Return the passes; None if all models with passes are on the policy's devices."""
        passes = algorithm.plan.passes_of(live=False)
        needed = {each.role: (each.role, *each.beside) for each in passes}
        apart = [role for role in needed if role in devices.apart]
        if not apart:
            return None
        together = [role for role in needed if role not in apart]
        groups = [(role,) for role in apart] + ([tuple(together)] if together else [])
        programs = {}
        for roles in groups:
            models = tuple(dict.fromkeys(role for each in roles for role in needed[each]))
            programs[roles[0]] = models, share(Scoring(algorithm=algorithm, graphdefs=graphdefs, roles=roles))
        fields = {field for each in passes for field in INPUTS[each.inputs].fields.values()}
        return cls(devices=devices, programs=programs, reads=frozenset(fields | {KEPT}))

    def __call__(
        self, weights: Mapping[str, Weights], batch: Mapping[str, Any], hyper: Mapping[str, Floats]
    ) -> tuple[dict[str, Any], Sums]:
        """Return the fields, on the policy's devices, and their metrics."""
        read = {name: value for name, value in batch.items() if name in self.reads}
        found = []
        for role, (models, program) in self.programs.items():
            devices = self.devices.of(role)
            with devices.use():
                found.append(program({each: weights[each] for each in models}, devices.rows(read), hyper))
        fields, metrics = dict[str, Any](), Sums()
        for scored, measured in found:
            fields |= self.devices.rows(scored)
            metrics = merge(metrics, self.devices.whole(measured))
        return fields, metrics
