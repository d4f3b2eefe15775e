"""What sweeps are made of: executors run the trials, samplers choose them, rules stop some of them early."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("executor", "local", "dovetail_executor.executor.local:Local")
    register("executor", "ray", "dovetail_executor.executor.ray:Ray")
    for name in ("median", "percentile", "successive_halving"):
        register("early_stopping", name, f"dovetail_executor.early_stopping.{name}:{name}")
    for name, made in (
        ("random", "Random"),
        ("sobol", "Sobol"),
        ("tpe", "Tpe"),
        ("cma_es", "CmaEs"),
        ("gp", "Gp"),
        ("pbt", "Pbt"),
    ):
        register("sampler", name, f"dovetail_executor.sampler.{name}:{made}")
