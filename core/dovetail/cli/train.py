"""`dovetail train`, `dovetail sft` and `dovetail replay`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_config, add_trust


def add(commands: Commands) -> None:
    """Declare the commands."""
    for name, summary in (
        ("train", "train a model: the supervised warm start, if the config has one, then reinforcement learning"),
        ("sft", "run only the supervised warm start; `train` with the same config and folder continues from it"),
    ):
        command = commands.add_parser(name, help=summary)
        add_config(command)
        command.add_argument(
            "--folder", type=Path, help="run folder (default: runs/CONFIG-RUNID); resumes a run that has begun"
        )
        command.set_defaults(run=train_command, only_sft=name == "sft", profile=None)
        if name == "train":
            command.add_argument(
                "--profile",
                metavar="steps=FIRST:LAST",
                help="trace these RL steps, counted from 1, into FOLDER/profile for Perfetto and TensorBoard",
            )
    command = commands.add_parser("replay", help="train a run again on what it has sampled, without an engine")
    command.add_argument("source", metavar="RUN", type=Path, help="folder of a run with run.keep_messages = True")
    command.add_argument("--folder", type=Path, help="folder of the new run (default: RUN-replayed)")
    add_trust(command)
    command.set_defaults(run=replay_command)


def train_command(options: argparse.Namespace) -> int:
    """Load a config, run it in its folder and print where the results are."""
    from dovetail.cli.configs import print_notices
    from dovetail.config import load
    from dovetail.run.process import prepare
    from dovetail.shipped import find
    from dovetail.train.profile import FOLDER, Window

    window = Window.parse(options.profile) if options.profile else None
    path = find(options.config)
    loaded = load(path, options.overrides)
    prepare()
    print_notices(loaded)
    from dovetail.run.folder import default_folder
    from dovetail.run.summary import summarise
    from dovetail.train.loop import train

    chosen = options.folder or (Path(loaded.run.folder) if loaded.run.folder else None)
    where = chosen or default_folder(loaded, path.stem)
    train(loaded, where, only_sft=options.only_sft, profile=window)
    print(summarise(where))
    if window:
        print(
            f"profile      {where / FOLDER}: open the .trace.json.gz in ui.perfetto.dev, or the folder in TensorBoard"
        )
    return 0


def replay_command(options: argparse.Namespace) -> int:
    """Train a run again in another folder, and say whether it has written the same."""
    from dovetail.config import load
    from dovetail.errors import RunError
    from dovetail.run.folder import CONFIG
    from dovetail.run.process import prepare
    from dovetail.run.summary import summarise
    from dovetail.train.loop import train

    source: Path = options.source
    where: Path = options.folder or source.with_name(f"{source.name}-replayed")
    if not (source / CONFIG).exists():
        raise RunError(f"'{source}' is not the folder of a run: it has no {CONFIG}")
    if where.resolve() == source.resolve():
        raise RunError(f"'{source}' cannot be trained again in itself; choose another --folder")
    loaded = load(source / CONFIG, ["run.keep_messages=False", "run.folder=None"], trusted=options.trust)
    prepare()
    train(loaded, where, replays=source)
    print(summarise(where))
    same = (where / "metrics.jsonl").read_bytes() == (source / "metrics.jsonl").read_bytes()
    print(f"replay       metrics.jsonl is {'the same, byte for byte' if same else 'not the same'} as in {source}")
    return 0 if same else 1
