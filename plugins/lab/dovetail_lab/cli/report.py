"""`dovetail report`: a page about runs, a sweep or an A/B test."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, given_path


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "write a page about a run, several runs, a sweep or an A/B test, also while it goes on"
    description = f"{summary}: one HTML file that makes no requests."
    command = commands.add_parser("report", help=summary, description=description)
    command.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="run folders, or one other folder")
    command.add_argument("--output", type=given_path, help="the file (default: report.html in the folder, or here)")
    command.add_argument("--metric", help="of a sweep: what is compared (default: that of the sweep)")
    command.add_argument("--goal", choices=("max", "min"), help="of a sweep: whether higher is better")
    command.add_argument("--watch", action="store_true", help="serve the page on this machine, up to date at each look")
    command.add_argument("--port", type=int, default=8642, help="of --watch (default: 8642; 0: any that is free)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, and print where it is."""
    from dovetail_lab.report import commands

    return commands.run(options)
