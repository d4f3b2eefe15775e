"""What sweeps are made of, pools, and runs of several processes.

Executors run the trials, samplers choose them, rules stop some of them early; pools run rewards and tools. In `hosts`,
several processes become one run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.train import Training


@hookimpl
def dovetail_training(training: Training) -> None:
    """Add the options of a process that is one of several."""
    from dovetail_executor.hosts import command

    command.add(training)


@hookimpl
def dovetail_channels(several: bool) -> Any:
    """Sample in one process of several."""
    if not several:
        return None
    from dovetail_executor.hosts.across import Across

    return Across.open


@hookimpl
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open the kind `pool`, whose components determine where rewards and tools run."""
    from dovetail_executor.kinds import KINDS

    for kind in KINDS:
        register_kind(kind)


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("executor", "local", "dovetail_executor.executor.local:Local")
    register("executor", "ray", "dovetail_executor.executor.ray:Ray")
    register("pool", "processes", "dovetail_executor.pool.processes:Processes")
    register("pool", "ray", "dovetail_executor.pool.ray:Ray")
    for name in ("hyperband", "median", "patient", "percentile", "successive_halving", "threshold"):
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
