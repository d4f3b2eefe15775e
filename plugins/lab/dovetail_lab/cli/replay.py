"""`dovetail replay`: a run once more, on the completions that it has recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_plugins, given_path
from dovetail.errors import printable
from dovetail_lab.cli.policies import add_trust


def add(commands: Commands) -> None:
    """Declare the command."""
    command = commands.add_parser("replay", help="repeat a run on its recorded completions, without an engine")
    command.add_argument("source", metavar="RUN", type=Path, help="folder of a run that has kept its messages")
    command.add_argument("--folder", type=given_path, help="folder of the new run (default: RUN-replayed)")
    add_plugins(command)
    add_trust(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Repeat a run in another folder, and report whether its metrics are the same."""
    from dovetail.errors import RunError
    from dovetail.run.folder import CONFIG
    from dovetail.run.process import prepare
    from dovetail.training.loop import train
    from dovetail_lab.kept import kept_by
    from dovetail_lab.of_run import load_of_run
    from dovetail_lab.summary import summarise

    source: Path = options.source
    where: Path = options.folder or source.with_name(f"{source.name}-replayed")
    if not (source / CONFIG).exists():
        raise RunError(f"'{source}' is not the folder of a run: it has no {CONFIG}")
    if where.resolve() == source.resolve():
        raise RunError(f"'{source}' cannot be replayed into itself; choose another --folder")
    loaded = load_of_run(source, ["run.keep_messages=False", "run.folder=None"], trusted=options.trust)
    prepare()
    train(loaded, where, opening=kept_by(source))
    print(printable(summarise(where)))
    same = (where / "metrics.jsonl").read_bytes() == (source / "metrics.jsonl").read_bytes()
    print(f"replay       metrics.jsonl is {'the same, byte for byte' if same else 'not the same'} as in {source}")
    return 0 if same else 1
