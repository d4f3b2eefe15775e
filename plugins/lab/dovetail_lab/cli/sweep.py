"""`dovetail sweep`: its commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from dovetail.cli.options import Commands, add_config, given_path


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    def command(options: argparse.Namespace) -> int:
        from dovetail_lab.sweep import commands

        return getattr(commands, name)(options)

    return command


def add(commands: Commands) -> None:
    """Declare the commands."""
    summary = "train many variants of a config: grids, random draws, seeds; resumes, shows, exports"
    commands = commands.add_group("sweep", help=summary, default="run")
    summary = "start a sweep, or resume it; `dovetail sweep CONFIG ...` is short for this"
    run = commands.add_parser("run", help=summary)
    add_config(run)
    _add_space(run)
    _add_terms(run)
    run.set_defaults(run=_command("run"))
    for name, summary in (
        ("status", "print how each trial stands"),
        ("table", "print what each setting has come to, the best first"),
        ("importance", "print which parameters matter, by Optuna's PED-ANOVA"),
        ("kill", "stop trials, or without any the whole sweep; the same command resumes it"),
        ("export", "write the trials with their values, states and metrics"),
    ):
        each = commands.add_parser(name, help=summary)
        each.add_argument("folder", type=Path, help="the sweep's folder")
        each.set_defaults(run=_command(name))
        if name == "kill":
            each.add_argument("trials", nargs="*", metavar="TRIAL", help="ids, or as much of them as is unique")
        if name in ("table", "importance", "export"):
            each.add_argument("--metric", help="what is compared (default: that of the sweep)")
            each.add_argument("--goal", choices=("max", "min"), help="whether higher is better")
        if name == "export":
            each.add_argument("--format", choices=("csv", "json", "html"), default="csv")
            each.add_argument("--output", type=given_path, help="a file (default: stdout)")


def _add_space(run: argparse.ArgumentParser) -> None:
    space = run.add_argument_group("what is tried, in addition to what `sweep.*` in the config says")
    axes = "KEY=V,V[,KEY=V,V]"
    space.add_argument("--grid", action="append", default=[], metavar=axes, help="every combination; repeatable")
    space.add_argument("--zip", action="append", default=[], metavar=axes, help="values that advance together")
    space.add_argument(
        "--random",
        nargs="+",
        action="append",
        default=[],
        metavar=("N", "KEY=DISTRIBUTION"),
        help="N draws of loguniform(a,b), uniform(a,b), int(a,b) or choice(a,b,...)",
    )
    space.add_argument("--draw-seed", type=int, metavar="N", help="another seed, other draws")
    space.add_argument("--sampler", metavar="NAME", help="who draws: random (default), sobol, tpe, cma_es, gp, pbt")
    space.add_argument("--seeds", metavar="SEEDS", help="seeds of the runs: 5 is the first five, 2:5, or 0,7")
    space.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="KEY=V,KEY<V",
        help="leave out what meets all of it; repeatable",
    )


def _add_terms(run: argparse.ArgumentParser) -> None:
    terms = run.add_argument_group("how it runs")
    terms.add_argument(
        "--folder", type=given_path, help="the sweep's folder (default: sweeps/CONFIG); goes on if it has begun"
    )
    terms.add_argument("--extend", action="store_true", help="allow trials in addition to those that are in the folder")
    terms.add_argument("--dry-run", action="store_true", help="read and plan every trial, print them, start none")
    terms.add_argument("--jobs", type=int, metavar="N", help="workers at a time (default: 1)")
    terms.add_argument("--vectorize", type=int, metavar="N", help="train up to N trials that differ in numbers as one")
    terms.add_argument("--retry", type=int, metavar="N", help="begin a failed trial N times more, from its checkpoint")
    terms.add_argument("--timeout", metavar="TIME", help="end an attempt after 90s, 30m, 2h or 1d")
    failing = terms.add_mutually_exclusive_group()
    failing.add_argument("--fail-fast", action="store_true", default=None, help="end the sweep when a trial has failed")
    failing.add_argument(
        "--keep-going", action="store_false", dest="fail_fast", help="continue with the others (default)"
    )
    terms.add_argument("--executor", metavar="NAME", help="where trials run: local (default), ray, or a plugin's")
    terms.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster: auto, or host:port")
    terms.add_argument("--metric", help="what is compared and judged (default: eval/accuracy)")
    terms.add_argument("--goal", choices=("max", "min"), help="whether higher is better (default: max)")
    terms.add_argument("--early-stopping", metavar="RULE", help="median, successive_halving, or a plugin's")
