"""The options of commands that use a policy, and what the commands do with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail_lab.evaluation.asked import Asked
from dovetail_lab.evaluation.checkpoints import BEST, NEWEST

if TYPE_CHECKING:
    from dovetail.config import Config


def add_policy(command: argparse.ArgumentParser) -> None:
    """Add the argument for the run whose weights are used: `options.of`."""
    command.add_argument(
        "--run",
        dest="of",
        type=Path,
        metavar="FOLDER",
        help="run folder: use its weights, and its config unless another is given",
    )
    add_checkpoint(command)
    add_trust(command)


def add_checkpoint(command: argparse.ArgumentParser) -> None:
    """Add the argument for which weights of a run are used: `options.checkpoint`."""
    command.add_argument(
        "--checkpoint",
        default=NEWEST,
        metavar="STEP",
        help=f"a step of the run, {NEWEST} (the default), or {BEST} (see run.keep_best)",
    )


def add_trust(command: argparse.ArgumentParser) -> None:
    """Add the argument by which a run folder's config may have programs run: `options.trust`."""
    command.add_argument(
        "--trust",
        action="store_true",
        help="run the programs that the config of the run folder names, and call servers",
    )


def asked(options: argparse.Namespace) -> Asked:
    """Return whose policy a command line asks for.

    Raises:
        ConfigError: if a checkpoint is named, but no run.
    """
    if options.of is None and options.checkpoint != NEWEST:
        raise ConfigError(f"--checkpoint {options.checkpoint} is of a run: name its folder with --run")
    return Asked(run=options.of, config=options.config, settings=options.overrides, trusted=options.trust)


def run_folder(options: argparse.Namespace, config: Config, path: Path) -> Path:
    """Return where results go: the folder of the run, or the one that a run of this config would have."""
    from dovetail.run.folder import default_folder

    return options.of or default_folder(config, path.stem)
