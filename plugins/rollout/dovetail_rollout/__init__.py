"""Dovetail's built-in rollout plugin: engines that sample completions."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("rollout", "vanilla", "dovetail_rollout.vanilla:Vanilla")
