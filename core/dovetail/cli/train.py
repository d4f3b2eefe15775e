"""`dovetail train` and `dovetail sft`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.options import Commands, add_config, given_path
from dovetail.errors import printable

if TYPE_CHECKING:
    from dovetail.config import Config


def add(commands: Commands) -> None:
    """Declare the commands."""
    for name, summary in (
        ("train", "train a model: the supervised warm start, if the config has one, then reinforcement learning"),
        ("sft", "run only the supervised warm start; `train` with the same config and folder continues from it"),
    ):
        command = commands.add_parser(name, help=summary)
        add_config(command)
        command.add_argument(
            "--folder", type=given_path, help="run folder (default: runs/CONFIG-RUNID); resumes a run that has begun"
        )
        command.set_defaults(run=train_command, only_sft=name == "sft", profile=None)
        _add_processes(command)
        if name == "train":
            command.add_argument(
                "--profile",
                metavar="steps=FIRST:LAST",
                help="trace these RL steps, counted from 1, into FOLDER/profile for Perfetto and TensorBoard",
            )


def _add_processes(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a process that is one of several: `meeting` reads them."""
    several = command.add_argument_group("one run in several processes, on one host or several (docs/several_hosts.md)")
    several.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="where process 0 is, and a free port there; 'auto' takes all of it from the environment of Slurm,"
        " Kubernetes, Open MPI or a TPU pod",
    )
    several.add_argument("--processes", type=int, metavar="N", help="how many there are")
    several.add_argument("--process", type=int, metavar="I", help="which of them this is, from 0 on")
    several.add_argument(
        "--wait", type=int, default=300, metavar="SECONDS", help="how long to wait for all (default: 300)"
    )
    several.add_argument(
        "--deadline",
        type=int,
        default=60,
        metavar="SECONDS",
        help="a process that is not heard of for so long has died, which ends all (default: 60)",
    )


def meeting(options: argparse.Namespace) -> Any:
    """Return where the processes of a run meet (`dovetail.run.join.Meeting`); None for one that is alone."""
    from dovetail.errors import RunError
    from dovetail.run.join import Meeting

    if options.coordinator is None:
        if options.processes is not None or options.process is not None:
            raise RunError("--processes and --process need --coordinator HOST:PORT, the address of process 0")
        return None
    return Meeting(
        coordinator=options.coordinator,
        processes=options.processes,
        process=options.process,
        wait=options.wait,
        deadline=options.deadline,
    )


def train_command(options: argparse.Namespace) -> int:
    """Load a config, run it in its folder and print where the results are."""
    from dovetail.config import load
    from dovetail.run.process import prepare
    from dovetail.shipped import find
    from dovetail.train.profile import FOLDER, Window

    window = None if options.profile is None else Window.parse(options.profile)
    met = meeting(options)
    path = find(options.config)
    loaded = load(path, options.overrides)
    prepare()
    print_notices(loaded)
    from dovetail.devices import processes
    from dovetail.run.folder import default_folder, identity
    from dovetail.run.join import joined
    from dovetail.run.summary import summarise
    from dovetail.train.loop import train

    chosen = options.folder or (Path(loaded.run.folder) if loaded.run.folder else None)
    where = chosen or default_folder(loaded, path.stem)
    with joined(met, lambda: identity(where, loaded)):
        train(loaded, where, only_sft=options.only_sft, profile=window if processes.is_first() else None)
        if not processes.is_first():
            return 0
        print(printable(summarise(where)))
        if window:
            traced = where / FOLDER
            print(f"profile      {traced}: open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard")
    return 0


def print_notices(config: Config) -> None:
    """Print the bindings without effect, and warnings about settings that are valid but probably unintended."""
    from dovetail.step.algorithm import warnings

    for unused in config.unused:
        print(printable(unused))
    for warning in warnings(config):
        print(f"warning: {printable(warning)}")
