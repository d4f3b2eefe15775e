"""The options of commands that use a policy, and what the commands do with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from dovetail.errors import ConfigError, RunError
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


def load_policy_config(options: argparse.Namespace, also: Sequence[str] = ()) -> tuple[Path, Config]:
    """Return the config of a command line and its file: the one that is named, or else that of the run.

    Raises:
        RunError: if the folder is not a run's, or the run needs a single-file plugin that is not loaded.
        ConfigError: if a checkpoint is named, but no run.
    """
    from dovetail.config import load
    from dovetail.run.folder import CONFIG
    from dovetail.shipped import find
    from dovetail_lab.of_run import load_of_run

    if options.of is not None and not (options.of / CONFIG).is_file():
        raise RunError(f"'{options.of}' is not a run folder: it holds no {CONFIG}")
    if options.of is not None and options.config is None:
        return options.of / CONFIG, load_of_run(options.of, [*options.overrides, *also], trusted=options.trust)
    if options.of is None and options.checkpoint != NEWEST:
        raise ConfigError(f"--checkpoint {options.checkpoint} is of a run: name its folder with --run")
    path = find(options.config)
    return path, load(path, [*options.overrides, *also])


def run_folder(options: argparse.Namespace, config: Config, path: Path) -> Path:
    """Return where results go: the folder of the run, or the one that a run of this config would have."""
    from dovetail.run.folder import default_folder

    return options.of or default_folder(config, path.stem)


def with_preset(config: Config, section: Literal["sampling", "eval"], name: str | None) -> Config:
    """Return a config whose `sampling` or `eval` section is overridden by the values of a preset.

    Raises:
        UnknownNameError: if there is no such preset.
        ConfigError: if the preset has a value for a setting that the section does not have.
    """
    if name is None:
        return config
    preset = config.component("sampling_preset", name)
    settings = getattr(config, section)
    unknown = preset.params.keys() - attrs.fields_dict(type(settings)).keys()
    if unknown:
        raise ConfigError(f"{preset.component.label} gives '{min(unknown)}', which {section} has not")
    return attrs.evolve(config, sections={**config.sections, section: attrs.evolve(settings, **preset.params)})
