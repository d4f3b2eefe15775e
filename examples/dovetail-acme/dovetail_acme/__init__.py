"""A loss, an estimator with a field of its own, a reward, a task, a sink, a command and a recipe for Dovetail.

Every command imports this module, so that it stays light: targets are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import dovetail

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@dovetail.hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("advantage", "hesitant", "dovetail_acme.hesitant:hesitant")
    register("field", "top_probability", "dovetail_acme.top_probability:top_probability")
    register("policy_loss", "soft_clip", "dovetail_acme.soft_clip:soft_clip")
    register("reward", "near_miss", "dovetail_acme.near_miss:near_miss")
    register("sink", "team_wandb", "dovetail_acme.team_wandb:Wandb")
    register("task", "sequences", "dovetail_acme.sequences:Sequences")


@dovetail.hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add `dovetail leaderboard`."""
    from dovetail_acme import leaderboard

    leaderboard.add(commands)


@dovetail.hookimpl
def dovetail_configs(register: Callable[[str | Path], None]) -> None:
    """Ship `dovetail-acme/acme` and what it includes."""
    register("configs")
