"""Optimizers from optax, learning-rate schedules, and schedules for the weight of a term."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""

    def add(kind: str, name: str, attribute: str = "", aliases: tuple[str, ...] = ()) -> None:
        register(kind, name, f"dovetail_optim.{kind}.{name}:{attribute or name}", aliases=aliases)

    add("lr_schedule", "constant")
    add("lr_schedule", "inverse_sqrt")
    add("lr_schedule", "warmup_cosine", aliases=("cosine",))
    add("lr_schedule", "warmup_linear", aliases=("linear",))
    add("lr_schedule", "warmup_stable_decay", aliases=("wsd",))
    add("optimizer", "adafactor")
    add("optimizer", "adamw", aliases=("adam_w",))
    add("optimizer", "lion")
    add("optimizer", "muon")
    add("optimizer", "sgd")
    add("schedule", "cosine")
    add("schedule", "exponential")
    add("schedule", "linear")
    add("schedule", "sigmoid")
    add("schedule", "step")


@hookimpl
def dovetail_run_start(folder: Path, setup: Any) -> None:
    """Say which schedules of an extended run have begun with another number of steps."""
    from dovetail_optim.extended import told

    if line := told(folder, setup.algorithm):
        print(line, file=sys.stderr)
