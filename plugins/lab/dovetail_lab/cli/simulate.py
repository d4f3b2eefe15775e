"""`dovetail simulate`: what a step would take with another staleness, other groups or more engines."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.cli.options import Commands, add_plugins
from dovetail_lab.cli.policies import add_trust


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "predict step time, idle shares and staleness of a recorded run with other settings"
    description = (
        f"{summary}: lengths and decoding cost are fitted to its records. Both programs are taken to have hardware of"
        " their own, so that sampling ahead takes nothing from the update."
    )
    command = commands.add_parser("simulate", help=summary, description=description)
    command.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a run")
    command.add_argument(
        "--staleness", type=_numbers(0), default=(0, 1, 2, 4), metavar="K,K", help="(default: 0,1,2,4)"
    )
    command.add_argument("--group-size", type=_numbers(1), metavar="G,G", help="(default: the run's)")
    command.add_argument("--engines", type=_numbers(1), default=(1,), metavar="N,N", help="(default: 1)")
    add_plugins(command)
    add_trust(command)
    command.add_argument(
        "--oversample", type=_numbers(0), metavar="M,M", help="(default: the run's; only with train.group_filter)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a table."""
    from dovetail.errors import RunError
    from dovetail_lab.simulate.fit import fit

    found = fit(options.run_folder, trusted=options.trust)
    per_position, per_token = found.costs()
    print(
        f"{len(found.tokens)} steps of {found.rows} completions: decoding {found.decoding.mean():.3f} s"
        f" ({1e3 * per_position:.3g} ms per position, {1e6 * per_token:.3g} us per token), rewards"
        f" {found.rewards.mean():.3f} s, training {found.training.mean():.3f} s\n"
    )
    if options.oversample and found.drawing is None:
        raise RunError(
            f"'{options.run_folder}' has no train.group_filter, so one round is enough for a step and --oversample"
            " changes nothing; leave it out"
        )
    if (drawing := found.drawing) is not None:
        print(
            f"{drawing.passing:.1%} of the groups pass the filter; {found.rounds.mean():.2f} rounds of {drawing.size}\n"
        )
    if found.doubtful and options.engines != (1,):
        print(
            "All recorded steps are so much alike that the cost of a position cannot be told from that of a token:\n"
            "with more engines a step may take longer than this. Runs with an engine that tells its pace (vllm) can.\n"
        )
    titles = f"{'step, s':>10} {'idle trainer':>13} {'idle sampler':>13} {'staleness':>10}"
    more = f"{'oversample':>11} {'rounds':>7} " if found.drawing else ""
    print(f"{'k':>3} {'group':>6} {'engines':>8} {more}{titles}")
    groups, extra = options.group_size or (found.group_size,), options.oversample or (None,)
    settings: Any = itertools.product(groups, options.engines, extra, options.staleness)
    for group, engines, oversample, k in settings:
        at = found.forecast(k, group, engines, oversample)
        if drawing is not None:
            said = drawing.more if oversample is None else oversample
            more = f"{'-' if said is None else said:>11} {at.rounds:>7.2f} "
        shares = f"{at.idle_trainer:>13.1%} {at.idle_sampler:>13.1%}"
        print(f"{k:>3} {group:>6} {engines:>8} {more}{at.step:>10.3f} {shares} {at.staleness:>10.2f}")
    return 0


def _numbers(least: int) -> Callable[[str], tuple[int, ...]]:
    def parse(text: str) -> tuple[int, ...]:
        """Read whole numbers between commas."""
        try:
            values = tuple(int(part) for part in text.split(","))
        except ValueError:
            values = ()
        if not values or min(values) < least:
            raise argparse.ArgumentTypeError(f"'{text}': expected whole numbers from {least} on, with commas between")
        return values

    return parse
