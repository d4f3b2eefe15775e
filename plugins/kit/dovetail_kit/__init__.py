"""Tools for authors of plugins: a scaffold for packages, a doctor, and the conformance suite.

The public interface consists of the commands `dovetail doctor`, `dovetail plugins` and `dovetail plugin`, the pytest
option `--dovetail-dist` with its hook, `dovetail_kit.rollout` for tests of a rollout engine, and `dovetail_kit.workers`,
which components use to call a function with a time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.cli.options import Commands


@hookimpl
def dovetail_commands(commands: Commands) -> None:
    """Add `dovetail doctor`, `plugin` and `plugins`."""
    from dovetail_kit import cli

    cli.add(commands)
