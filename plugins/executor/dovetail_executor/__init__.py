"""Where the trials of a sweep run, and the rules by which some of them are stopped early."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("executor", "local", "dovetail_executor.local:Local")
    register("executor", "ray", "dovetail_executor.ray:Ray")
    register("early_stopping", "median", "dovetail_executor.median:median")
    register("early_stopping", "successive_halving", "dovetail_executor.successive_halving:successive_halving")
