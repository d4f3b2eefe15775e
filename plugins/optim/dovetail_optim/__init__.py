"""Optimisers from optax, learning-rate schedules (`schedules`) and schedules of a weight (`weight_schedules`)."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("optimizer", "adamw", "dovetail_optim.adamw:adamw", aliases=("adam_w",))
    register("optimizer", "sgd", "dovetail_optim.sgd:sgd")
    register("lr_schedule", "constant", "dovetail_optim.schedules:constant")
    register("lr_schedule", "warmup_cosine", "dovetail_optim.schedules:warmup_cosine", aliases=("cosine",))
    register("lr_schedule", "warmup_linear", "dovetail_optim.schedules:warmup_linear", aliases=("linear",))
    register("schedule", "cosine", "dovetail_optim.weight_schedules:cosine")
    register("schedule", "exponential", "dovetail_optim.weight_schedules:exponential")
    register("schedule", "linear", "dovetail_optim.weight_schedules:linear")
    register("schedule", "sigmoid", "dovetail_optim.weight_schedules:sigmoid")
    register("schedule", "step", "dovetail_optim.weight_schedules:step")
