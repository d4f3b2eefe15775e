"""The command `dovetail`. Every command imports what it needs when it runs, so that `--help` costs next to nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail.errors import DovetailError

TRACEBACK = "DOVETAIL_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    An error meant for the user is one line on stderr; `DOVETAIL_TRACEBACK=1` shows where it was raised.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except DovetailError as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dovetail",
        description="Reinforcement-learning post-training of language models from named, replaceable components.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _training(commands)
    _configs(commands)
    _names(commands)
    return parser


def _training(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, summary in (
        ("train", "train: the warm start, if the config asks for one, then reinforcement learning"),
        ("sft", "only the supervised warm start; `train` with the same config and folder goes on from it"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        _add_config(command)
        command.add_argument(
            "--folder", type=Path, help="run folder (default: runs/CONFIG-RUNID); resumes if it has begun"
        )
        command.set_defaults(run=_train, only_sft=name == "sft")


def _configs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = commands.add_parser("explain", help="print the plan: each field, who provides it, who reads it")
    _add_config(explain)
    explain.set_defaults(run=_explain)
    config = commands.add_parser("config", help="show, explain or compare configs").add_subparsers(
        required=True, metavar="COMMAND"
    )
    show = config.add_parser("show", help="print every value with where it comes from")
    _add_config(show)
    show.set_defaults(run=_show)
    also = config.add_parser("explain", help="same as `dovetail explain`")
    _add_config(also)
    also.set_defaults(run=_explain)
    diff = config.add_parser("diff", help="print the values in which two configs differ")
    diff.add_argument("first")
    diff.add_argument("second")
    diff.set_defaults(run=_diff)


def _names(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plugins = commands.add_parser("plugins", help="list the installed plugins and what they register")
    plugins.set_defaults(run=_plugins)
    names = commands.add_parser("names", help="list the components of a kind, or of all kinds")
    names.add_argument("kind", nargs="?")
    names.set_defaults(run=_list_names)
    describe = commands.add_parser("describe", help="print a component's formula, fields, parameters and origin")
    describe.add_argument("kind")
    describe.add_argument("name")
    describe.set_defaults(run=_describe)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "config",
        nargs="?",
        help="a gin file, or the name of a shipped config (default: quickstart)",
    )
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a binding; repeatable",
    )


def _train(options: argparse.Namespace) -> int:
    from dovetail.cli.train import train_command

    return train_command(options.config, options.overrides, options.folder, only_sft=options.only_sft)


def _explain(options: argparse.Namespace) -> int:
    from dovetail.cli.configs import explain

    return explain(options.config, options.overrides)


def _show(options: argparse.Namespace) -> int:
    from dovetail.cli.configs import show

    return show(options.config, options.overrides)


def _diff(options: argparse.Namespace) -> int:
    from dovetail.cli.configs import diff

    return diff(options.first, options.second)


def _plugins(_: argparse.Namespace) -> int:
    from dovetail.cli.names import plugins

    return plugins()


def _list_names(options: argparse.Namespace) -> int:
    from dovetail.cli.names import list_names

    return list_names(options.kind)


def _describe(options: argparse.Namespace) -> int:
    from dovetail.cli.names import describe

    return describe(options.kind, options.name)
