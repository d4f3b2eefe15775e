"""`dovetail ab`: an A/B test with a verdict."""

from __future__ import annotations

import argparse

from dovetail.cli.options import Commands, add_config, given_path


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "compare variants of a config over the same seeds: registered before, decided by an exact test"
    description = (
        f"{summary}. The first arm is the control. Writes ab.html, ab.md and ab.json; status 0: every arm has a"
        " verdict that confirms what was registered, 3: the data do not tell, 1: an error. The same command resumes a"
        " test that was interrupted."
    )
    command = commands.add_parser("ab", help=summary, description=description)
    add_config(command)
    _add_design(command)
    _add_terms(command)
    command.set_defaults(run=run)


def _add_design(command: argparse.ArgumentParser) -> None:
    design = command.add_argument_group("what is registered before the first run, in addition to `ab.*` in the config")
    arm = "NAME:KEY=VALUE,..."
    design.add_argument(
        "--arm", action="append", default=[], metavar=arm, help="a variant; NAME alone is the config itself; repeatable"
    )
    design.add_argument("--control", metavar="NAME", help="the arm that others are compared with (default: the first)")
    design.add_argument("--seeds", help="a pair of runs for each: 8 is the first eight (default), or 2:10, or 0,7")
    design.add_argument("--metric", help="the primary metric (default: eval/accuracy)")
    design.add_argument("--goal", choices=("max", "min"), help="whether higher is better (default: max)")
    design.add_argument("--window", help="mean of what: last, last5, last10%%, all (default: last10%%)")
    design.add_argument("--min-effect", type=float, metavar="X", help="least difference that matters (default: 0)")
    design.add_argument("--alpha", type=float, help="chance of a false winner (default: 0.05)")
    design.add_argument(
        "--lost", choices=("leave_out", "worst"), help="what a crashed run counts as (default: its pair is left out)"
    )
    design.add_argument("--sequential", metavar="RULE", help="pocock:4 looks four times and stops when decided")
    design.add_argument(
        "--deviation", type=float, metavar="X", help="standard deviation of the differences in a pilot, for the power"
    )
    design.add_argument("--amend", metavar="WHY", help="change what is registered; logged, and shown in the report")
    design.add_argument("--repeat", action="store_true", help="allow seeds on which these arms were compared elsewhere")


def _add_terms(command: argparse.ArgumentParser) -> None:
    terms = command.add_argument_group("how it runs, as for `dovetail sweep`")
    terms.add_argument(
        "--folder", type=given_path, help="folder of the test (default: ab/CONFIG); goes on if it has begun"
    )
    terms.add_argument("--dry-run", action="store_true", help="read and plan every run, print the power, start none")
    terms.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: 1)")
    terms.add_argument("--retry", type=int, metavar="N", help="begin a failed run N times more, from its checkpoint")
    terms.add_argument("--timeout", metavar="TIME", help="end an attempt after 90s, 30m, 2h or 1d")
    terms.add_argument("--executor", metavar="NAME", help="where runs happen: local (default), ray, or a plugin's")
    terms.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster: auto, or host:port")


def run(options: argparse.Namespace) -> int:
    """Run the test."""
    from dovetail_lab.ab import commands

    return commands.run(options)
