"""What the author of a plugin works with: a package to begin with, a doctor, and the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add `dovetail plugin` and `plugins`."""
    from dovetail_kit import cli

    cli.add(commands)
