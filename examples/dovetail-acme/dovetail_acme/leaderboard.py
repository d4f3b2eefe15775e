"""The command `dovetail leaderboard`: which of the runs in a folder went best."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands


def add(commands: Commands) -> None:
    """Declare the command."""
    command = commands.add_parser("leaderboard", help="rank the runs in a folder by the best value of a metric")
    command.add_argument("folder", type=Path, help="runs, or whatever they were put into")
    command.add_argument("--metric", default="eval/accuracy", help="what counts (default: eval/accuracy)")
    command.set_defaults(run=leaderboard)


def leaderboard(options: argparse.Namespace) -> int:
    """Print the runs, the best first, with the step of their best value; status 1 if there are none."""
    from dovetail.run.summary import series

    found = []
    for file in options.folder.glob("*/metrics.jsonl"):
        values = series(file.parent, options.metric)
        if values:
            step, best = max(values, key=lambda pair: pair[1])
            found.append((best, step, file.parent.name))
    for best, step, name in sorted(found, reverse=True):
        print(f"{best:8.4g}  {name}, step {step}")
    if not found:
        print(f"no run in '{options.folder}' has recorded {options.metric}")
    return 0 if found else 1
