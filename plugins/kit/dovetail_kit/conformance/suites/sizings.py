"""What is claimed of sizings: what they choose can be computed, and a run that goes on chooses the same."""

from __future__ import annotations

from typing import Any

import attrs
from flax import nnx

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import DoesNotFit, Settled, Traits
from dovetail.step.algorithm import assemble
from dovetail.training.models import Models, in_mode
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject

VOCABULARY, GROUP, ROWS = 300, 4, 16
SMALL = (
    "model.decoder.width=16",
    "model.decoder.layers=1",
    "model.decoder.heads=2",
    "model.decoder.kv_heads=1",
    "train.prompts=4",
    f"train.group_size={GROUP}",
    "train.max_prompt_tokens=8",
    "sampling.max_tokens=8",
)
CASES = {
    "a small model": (),
    "hardly any memory": ("memory.limit=1e-6",),
    "a loss that compares the completions of a group": ("train.loss_terms=('dpo',)", "memory.limit=1e-6"),
    "a critic": ("train.advantage=gae",),
    "train.micro_batch_size = 8": ("train.micro_batch_size=8",),
}


@attrs.frozen
class _Step:
    """A step for which sizes are chosen."""

    config: Any
    algorithm: Any
    models: Models
    devices: Devices

    @classmethod
    def of(cls, *overrides: str) -> _Step:
        config, devices = load(None, [*SMALL, *overrides]), Devices(None)
        return cls(config, assemble(config), Models(config=config, devices=devices, vocab_size=VOCABULARY), devices)

    def choose(self, subject: Subject) -> Settled:
        """Return the choice, or that of the refusal if nothing fits."""
        try:
            return subject.bind().update(self.config, self.algorithm, self.models, self.devices)
        except DoesNotFit as error:
            if error.least is None:
                raise Failed(
                    "refuses a step without the choice that needs least memory: DoesNotFit(..., least)"
                ) from error
            return error.least


@check("sizing", fix="Choose one of the model's `modes`, and micro-batches no larger than a mini-batch.")
def can_be_computed(subject: Subject) -> None:
    """Its mode is one of the model's, its sizes are possible, and `train.micro_batch_size` is kept where it is set.

    The same is true of the choice that a refusal names as the one that needs least memory.
    """
    for name, overrides in CASES.items():
        step = _Step.of(*overrides)
        found, (graphdef, weights) = step.choose(subject), step.models.shapes()
        modes = Traits.of(nnx.merge(graphdef, *weights)).modes
        if found.mode is not None and found.mode not in modes:
            raise Failed(f"for {name} it chooses the mode {found.mode!r}; the model has {', '.join(map(repr, modes))}")
        if not 1 <= found.micro_batch_size <= ROWS:
            raise Failed(f"for {name} it chooses micro-batches of {found.micro_batch_size} completions of {ROWS}")
        if step.config.train.micro_batch_size not in (None, found.micro_batch_size):
            raise Failed(f"for {name} it chooses micro-batches of {found.micro_batch_size} completions")
        if step.algorithm.whole_groups and found.micro_batch_size % GROUP:
            raise Failed(f"for {name} it chooses {found.micro_batch_size}, which splits groups of {GROUP}")
        if found.positions is not None and found.positions < 1:
            raise Failed(f"for {name} it chooses chunks of {found.positions} positions")


@check("sizing", fix="Decide by the config, by shapes and by the size of the device, and keep nothing between calls.")
def chooses_alike(subject: Subject) -> None:
    """Asked again it chooses the same, whatever it was asked in between.

    The processes of a run, and the trials of a sweep that share compiled programs, are asked separately.
    """
    steps = {name: _Step.of(*overrides) for name, overrides in CASES.items()}
    first = {name: step.choose(subject) for name, step in steps.items()}
    for name in reversed(steps):
        again = _Step.of(*CASES[name]).choose(subject)
        if again != first[name]:
            raise Failed(f"for {name} it chooses {first[name]} first, and later {again}")


@check("sizing", fix="Return at least 1, and no more than `sft.batch_size`.")
def sizes_a_warm_start(subject: Subject) -> None:
    """For a warm start it chooses a number of demonstrations between one and those of a step.

    The warm start fails on its first step, or runs out of memory.
    """
    for rows in (1, 6):
        step = _Step.of(f"sft.batch_size={rows}")
        graphdef, weights = step.models.shapes()
        made = in_mode(graphdef, weights, step.choose(subject).mode)
        found = subject.bind().warm_start(step.config, made, weights, step.devices)
        if not isinstance(found, int) or not 1 <= found <= rows:
            raise Failed(f"of {rows} demonstrations in a step it takes {found!r} at a time")
