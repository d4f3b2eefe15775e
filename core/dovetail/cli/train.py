"""`dovetail train` and `dovetail sft`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.cli.options import Commands, add_config, given_path
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_all

if TYPE_CHECKING:
    from dovetail.config import Config


@attrs.frozen
class Training:
    """A command that trains, `train` or `sft`, to which plugins add with the hook `dovetail_training`.

    Attributes:
        name: the command.
        parser: takes options: `training.parser.add_argument("--notify")`.
        around: functions of the parsed options, the config and the run's folder, which return the context managers in
            which the command trains.
    """

    name: str
    parser: argparse.ArgumentParser
    around: list[Callable[[argparse.Namespace, Config, Path], AbstractContextManager[Any]]] = attrs.field(factory=list)


def add(commands: Commands) -> None:
    """Declare the commands."""
    for name, summary in (
        ("train", "train a model: the supervised warm start, if the config has one, then reinforcement learning"),
        ("sft", "run only the supervised warm start; `train` with the same config and folder continues from it"),
    ):
        command = commands.add_parser(name, help=summary)
        add_config(command)
        command.add_argument(
            "--folder",
            type=given_path,
            help="run folder (default: runs/CONFIG-RUNID); resumes a run that has begun, also with more train.steps",
        )
        training = Training(name, command)
        command.set_defaults(run=train_command, only_sft=name == "sft", around=training.around)
        for _ in ask_all(plugin_manager(), "dovetail_training", lambda _, training=training: training):
            pass  # each plugin has added to it


def train_command(options: argparse.Namespace) -> int:
    """Load a config and run it in its folder."""
    from dovetail.config import load
    from dovetail.config.located import begun_in
    from dovetail.run.process import prepare
    from dovetail.shipped import find

    path = find(options.config)
    with begun_in(options.folder):
        loaded = load(path, options.overrides)
    if loaded.run.folder and not options.folder:  # as if --folder had named it: with the files that it began with
        options.folder = Path(loaded.run.folder)
        return train_command(options)
    prepare()
    from dovetail.devices.presence import devices
    from dovetail.run.folder import default_folder
    from dovetail.training.loop import train

    where = options.folder or default_folder(loaded, path.stem)
    with ExitStack() as stack:
        for context in options.around:
            stack.enter_context(context(options, loaded, where))
        devices()
        train(loaded, where, only_sft=options.only_sft)
    return 0
