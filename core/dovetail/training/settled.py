"""How a run computes its steps: chosen by the component of `memory.sizing`, checked, and stored with the run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
from flax import nnx

from dovetail.config import Config
from dovetail.devices.mesh import Devices
from dovetail.errors import RunError
from dovetail.protocols import DoesNotFit, Settled, Sizing, Traits
from dovetail.run.files import read_record, write_whole
from dovetail.run.folder import MEMORY
from dovetail.step.algorithm import Algorithm
from dovetail.training.models import Models

SETTING: Final = "memory.sizing"


def sizing(config: Config) -> Sizing:
    """Return the component that chooses how a step is computed."""
    return config.choice(SETTING).bind()


def settle(
    config: Config, algorithm: Algorithm, models: Models, devices: Devices, folder: Path, *, refuse: bool = True
) -> Settled:
    """Choose how to compute a step, or return the choice stored in the run's folder.

    Raises:
        DoesNotFit: if no choice fits, or the warm start does not. Unless `refuse` is set, the choice that needs least
            memory is returned instead where only a step of reinforcement learning does not fit.
    """
    kept, chooser = folder / MEMORY, sizing(config)
    if kept.exists():
        noted = _kept(kept)
        _check(noted, f"'{kept}' has", algorithm, models)
        return noted
    if config.sft.steps:
        chooser.warm_start(config, *models.shapes(), devices)
    try:
        found = chooser.update(config, algorithm, models, devices)
    except DoesNotFit as error:
        if refuse or error.least is None:
            raise
        found = error.least
    _check(found, f"{config.choice(SETTING).component.label} chose", algorithm, models)
    write_whole(kept, json.dumps(attrs.asdict(found), indent=2) + "\n")
    return found


def _kept(file: Path) -> Settled:
    """Read the choice with which a run began.

    Raises:
        RunError: if the file holds something else.
    """
    noted = read_record(file)
    with suppress(TypeError):  # other names
        found = Settled(**noted)
        sizes = (found.micro_batch_size, 1 if found.positions is None else found.positions)
        if isinstance(found.mode, str | None) and all(type(size) is int and size > 0 for size in sizes):
            return found
    expected = ", ".join(attrs.fields_dict(Settled))
    raise RunError(f"'{file}' does not hold {expected}; restore it, or choose another folder")


def _check(found: Settled, who: str, algorithm: Algorithm, models: Models) -> None:
    """Refuse a choice that cannot be computed; `who` begins the message: `sizing.fit chose`.

    Raises:
        RunError: naming who made it, the choice and what is allowed.
    """
    graphdef, weights = models.shapes()
    modes, most = Traits.of(nnx.merge(graphdef, *weights)).modes, algorithm.sizes.mini_batch_size
    if found.mode is not None and found.mode not in modes:
        known = ", ".join(map(repr, modes)) or "none"
        raise RunError(f"{who} the mode '{found.mode}'; modes of the model: {known}")
    if not 1 <= found.micro_batch_size <= most:
        raise RunError(
            f"{who} micro-batches of {found.micro_batch_size} completions; from 1 to {most}, the size of a mini-batch,"
            " are possible"
        )
    if algorithm.whole_groups and found.micro_batch_size % algorithm.sizes.group_size:
        raise RunError(
            f"{who} micro-batches of {found.micro_batch_size} completions, which cut groups of"
            f" {algorithm.sizes.group_size}, and the loss compares the completions of a group"
        )
