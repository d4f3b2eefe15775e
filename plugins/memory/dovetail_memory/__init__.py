"""The memory of a step: an estimate from shapes, the choice of sizes with which it fits, and the command `plan`.

The memory that compiling leaves allocated on the host is returned to the system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""
    register("sizing", "fit", "dovetail_memory.sizing.fit:Fit")


@hookimpl
def dovetail_devices() -> None:
    """Return the compiler's memory from now on."""
    from dovetail_memory.host import give_back_after_compiling

    give_back_after_compiling()


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add the command that prints the cost of a step."""
    from dovetail_memory import command

    command.add(commands)
