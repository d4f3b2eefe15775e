"""Dovetail's built-in advantage estimators."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("advantage", "dr_grpo", "dovetail_advantage.dr_grpo:dr_grpo", aliases=("drgrpo",))
    register("advantage", "gae", "dovetail_advantage.gae:gae")
    register("advantage", "grpo", "dovetail_advantage.grpo:grpo")
    register("advantage", "rloo", "dovetail_advantage.rloo:rloo")
