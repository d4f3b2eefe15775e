"""Many runs: sweeps, A/B tests with a verdict, and reports about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add `dovetail sweep`, `ab` and `report`."""
    from dovetail_lab.cli import ab, report, sweep

    for group in (sweep, ab, report):
        group.add(commands)
