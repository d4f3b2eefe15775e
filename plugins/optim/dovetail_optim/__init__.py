"""Optimisers and learning-rate schedules, all from optax."""

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
