"""`dovetail fleet`: the replicas of a run, more of them, or fewer, while it goes on."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands
from dovetail.errors import printable


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "show the replicas of a run's engine, or have more or fewer of them while it goes on"
    command = commands.add_parser("fleet", help=summary)
    command.add_argument("folder", type=Path, metavar="RUN", help="the run's folder")
    command.add_argument("what", nargs="?", choices=("status", "add", "remove"), default="status")
    command.add_argument("number", nargs="?", type=int, help="how many to add (default: 1), or which to remove")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Show or change the fleet; the run takes changes up within seconds while it samples."""
    from dovetail.errors import ConfigError
    from dovetail_rollout.hosted.roster import FOLDER, Roster

    roster = Roster(options.folder / FOLDER)
    status = roster.status()
    known = [int(number) for number in status["replicas"]]
    wanted = roster.wanted()
    wanted = known if wanted is None else list(wanted)
    if options.what == "add":
        count = 1 if options.number is None else options.number
        first = max([*known, *wanted], default=-1) + 1
        if count < 1:
            raise ConfigError(f"dovetail fleet {options.folder} add {count}: at least one can be added")
        roster.want([*wanted, *range(first, first + count)])
        print(f"replicas {', '.join(map(str, range(first, first + count)))} are asked for")
    elif options.what == "remove":
        there = ", ".join(map(str, wanted))
        if options.number is None:
            raise ConfigError(f"say which replica to remove: {there}")
        if options.number not in wanted:
            raise ConfigError(f"there is no replica {options.number}; there are {there}")
        if len(wanted) <= status["floor"]:
            raise ConfigError(f"{len(wanted)} replicas are left, and the run's floor is {status['floor']}")
        roster.want([number for number in wanted if number != options.number])
        print(f"replica {options.number} ends when it has answered what it has")
    else:
        for number, each in sorted(status["replicas"].items(), key=lambda item: int(item[0])):
            last = f"; {each['losses'][-1].splitlines()[0]}" if each["losses"] else ""
            weights = each["weights"] or "no weights"
            print(printable(f"{number}: {each['state']}, {weights}, lost {len(each['losses'])} times{last}"))
