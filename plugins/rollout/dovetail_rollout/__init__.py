"""Dovetail's built-in rollout plugin: engines that sample completions, also ahead of training, and replays of earlier
completions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import Renamed
from dovetail.hookspecs import RunInfo, hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@hookimpl
def dovetail_kinds(register_kind: Callable[..., None]) -> None:
    """Open the kind `launcher`, whose components determine where the replicas of an engine run."""
    from dovetail_rollout.kinds import KINDS

    for kind in KINDS:
        register_kind(kind)


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add `dovetail fleet`."""
    from dovetail_rollout.cli import fleet

    fleet.add(commands)


@hookimpl
def dovetail_channels(config: Any, several: bool) -> Any:
    """Sample in a thread of its own if it may be ahead of training."""
    if several or not config.train.staleness:
        return None
    from dovetail_rollout.ahead import Ahead

    return Ahead.open


@hookimpl
def dovetail_run_start(folder: Path) -> None:
    """Note where a fleet of this run says how it is."""
    from dovetail_rollout.hosted.roster import Roster

    Roster.run = folder


@hookimpl
def dovetail_run_end(run: RunInfo) -> None:
    """Forget it, unless another run has begun since."""
    from dovetail_rollout.hosted.roster import Roster

    if Roster.run == run.folder:
        Roster.run = None


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("launcher", "local", "dovetail_rollout.launcher.local:Local")
    register("launcher", "ray", "dovetail_rollout.launcher.ray:Ray")
    register("launcher", "urls", "dovetail_rollout.launcher.urls:Urls")
    register("replay", "recent", "dovetail_rollout.replay.recent:Recent")
    register("rollout", "recorded", "dovetail_rollout.rollout.recorded:Recorded")
    register("rollout", "sglang_jax", "dovetail_rollout.rollout.sglang_jax:SglangJax")
    register(
        "rollout",
        "vanilla",
        "dovetail_rollout.rollout.vanilla:Vanilla",
        renamed=[Renamed("lanes", to="slots", since="0.1", removed_in="0.2")],
    )
    register("rollout", "vllm", "dovetail_rollout.rollout.vllm:Vllm")
    register("sampling_preset", "greedy", "dovetail_rollout.sampling_preset.greedy:Greedy")
    register("sampling_preset", "liberal", "dovetail_rollout.sampling_preset.liberal:Liberal")
    register("sampling_preset", "standard", "dovetail_rollout.sampling_preset.standard:Standard")
