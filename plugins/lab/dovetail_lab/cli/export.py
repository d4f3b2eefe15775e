"""`dovetail export`: the model of a run for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_overrides, add_plugins, given_path
from dovetail.errors import RunError
from dovetail_lab.cli.policies import add_checkpoint, add_trust


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "write the model of a run as a Hugging Face folder, with its tokenizer and chat template"
    command = commands.add_parser("export", help=summary)
    command.add_argument("of", metavar="RUN", type=Path, help="run folder")
    add_checkpoint(command)
    command.add_argument("--out", type=given_path, required=True, help="folder to write, new or empty")
    command.add_argument(
        "--adapter", action="store_true", help="write only the adapter (default: merge it into the model)"
    )
    command.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="type of the parameters (default: the one they have)"
    )
    add_trust(command)
    add_plugins(command)
    add_overrides(command)
    command.set_defaults(run=run, config=None)


def run(options: argparse.Namespace) -> int:
    """Export the model, and print what was written."""
    from dovetail.run.process import prepare
    from dovetail_lab.cli.policies import asked
    from dovetail_lab.of_run import WEIGHTS, warn_of_other_code

    if options.out.exists() and not (options.out.is_dir() and not any(options.out.iterdir())):
        raise RunError(f"'{options.out}' is not an empty folder; name another")
    _, config = asked(options).read()
    warn_of_other_code(options.of, config, WEIGHTS)
    prepare()
    from dovetail.progress import begin
    from dovetail_lab.cli.progress import progress
    from dovetail_lab.evaluation.policy import open_policy

    with progress():
        policy = open_policy(config, options.of, options.checkpoint)
        begin("writing", str(options.out))
        files = policy.export(options.out, adapter=options.adapter, dtype=options.dtype)
    size = sum(file.stat().st_size for file in files)
    print(f"weights  {policy.at}, {size / 1e6:,.1f} MB in {len(files)} file{'s' * (len(files) != 1)}")
    print(f"folder   {options.out}")
    return 0
