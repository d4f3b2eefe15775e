"""`dovetail import-config`: a gin file from the settings of another library."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from dovetail.cli.options import Commands, given_path
from dovetail.errors import ConfigError

PEERS = ("trl", "verl", "tunix")


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "write a gin file from the settings of TRL, verl or tunix"
    description = (
        f"{summary}: a Python script that makes a config, YAML or JSON, or a shell script with overrides. Nothing of it"
        " is run. Each line says which setting it comes from; what cannot be carried is a comment with the reason."
    )
    command = commands.add_parser("import-config", help=summary, description=description)
    command.add_argument("peer", choices=PEERS, help="whose settings they are")
    command.add_argument("file", type=Path, help="where they are")
    command.add_argument("--out", type=given_path, help="the gin file to write (default: FILE's name, ending in .gin)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Translate, write, and say what is left to do."""
    from dovetail_lab.importing.writing import written

    translate = importlib.import_module(f"dovetail_lab.importing.{options.peer}").translate
    sheet = translate(options.file)
    out = options.out or Path(options.file.stem + ".gin")
    if out.exists():
        raise ConfigError(f"'{out}' exists already; name another file with --out")
    text = written(sheet, str(options.file))
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"'{out}' cannot be written: {error.strerror or error}") from error
    carried = sum(1 for line in sheet.lines if line.target) - len(sheet.blanks())
    print(f"{out}: {carried} settings, {len(sheet.left)} that could not be carried (at its end, with the reasons)")
    numbers = {line.partition(" = ")[0]: number for number, line in enumerate(text.splitlines(), start=1)}
    blanks = ", ".join(f"{target} (line {numbers[target]})" for target in sheet.blanks())
    print(f"next: {f'fill in {blanks}, then ' if blanks else ''}`dovetail explain {out}`")
    return 0
