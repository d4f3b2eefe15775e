"""Environments and tools of other libraries: gymnasium, TextArena, TRL, verl, OpenEnv, verifiers, and MCP servers.

Every command imports this module, so that it stays light: targets are imported on first use, and the libraries by them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dovetail


@dovetail.hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("interaction", "gymnasium", "dovetail_environments.interaction.gymnasium:Gymnasium")
    register("interaction", "openenv", "dovetail_environments.interaction.openenv:OpenEnv")
    register("interaction", "textarena", "dovetail_environments.interaction.textarena:TextArena")
    register("interaction", "trl", "dovetail_environments.interaction.trl:Trl")
    register("interaction", "verl", "dovetail_environments.interaction.verl:Verl")
    register("interaction", "verifiers", "dovetail_environments.interaction.verifiers:VerifiersUser")
    register("reward", "verifiers", "dovetail_environments.reward.verifiers:verifiers")
    register("task", "instruction", "dovetail_environments.task.instruction:Instruction")
    register("task", "verifiers", "dovetail_environments.task.verifiers:Verifiers")
    register("tool", "mcp", "dovetail_environments.tool.mcp:Mcp")
    register("tool", "verl", "dovetail_environments.tool.verl:VerlTool")


@dovetail.hookimpl
def dovetail_configs(register: Callable[[str | Path], None]) -> None:
    """Ship `dovetail-environments/lake`."""
    register("configs")
