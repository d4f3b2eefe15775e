"""Optimizers from optax, learning-rate schedules, and schedules for the weight of a term."""

from __future__ import annotations

from collections.abc import Callable

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
