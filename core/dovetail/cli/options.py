"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from dovetail.cli.complete import completed, configs, overrides

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_config(command: argparse.ArgumentParser) -> None:
    """Let a command take a config and overrides: `options.config`, `options.overrides`."""
    config = command.add_argument(
        "config",
        nargs="?",
        help="a gin file, or the name of a shipped config (default: quickstart)",
    )
    completed(config, configs)
    add_overrides(command)


def add_overrides(command: argparse.ArgumentParser) -> None:
    """Let a command take overrides: `options.overrides`."""
    override = command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a binding; repeatable",
    )
    completed(override, overrides)


def add_policy(command: argparse.ArgumentParser) -> None:
    """Let a command take the weights of a run: `options.of`."""
    command.add_argument(
        "--run",
        dest="of",
        type=Path,
        metavar="FOLDER",
        help="a run's folder: use its newest checkpoint, and its config where none is named",
    )
