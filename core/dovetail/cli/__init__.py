"""The command `dovetail`: the frame of the command line, and the commands that run the engine.

Plugins add all other commands with the hook `dovetail_commands`. Commands import the libraries they need only when they
run, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dovetail.cli import train
from dovetail.cli.commands import collect, parser_of
from dovetail.cli.ending import end_without_threads
from dovetail.cli.exhausted import out_of_memory
from dovetail.cli.terminal import Streams, streams
from dovetail.cli.variables import shows_tracebacks, warn_of_misspelt
from dovetail.errors import DISK, DovetailError, DovetailWarning, RunError, printable
from dovetail.interruptions import ignore_further, interruptions, no_silent_success
from dovetail.registry import add_file, current
from dovetail.registry.compatibility import ENGINE
from dovetail.registry.places import blamed

_FORMAT = warnings.formatwarning
FLAG = "--traceback"

GROUPS = (train.add,)
"""The functions that add the engine's own commands, in the order of `dovetail --help`; those of plugins follow."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of the process, and return the exit status.

    The status is 0 on success, 1 on failure, 2 for an invalid command line, and 130, 143 or 129 if stopped by SIGINT,
    SIGTERM or SIGHUP. Every error is reported as one line on stderr, even one caused by a bug in Dovetail or in a
    plugin. `--traceback`, before or after the command, or `DOVETAIL_TRACEBACK=1` shows where it was raised.
    """
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser(), always_complete_options="long")
    warnings.formatwarning = _format_warning
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    traceback = shows_tracebacks() or FLAG in given
    warn_of_misspelt()
    with streams() as terminal, no_silent_success(), interruptions() as interrupted:
        status = _run(given, traceback, interrupted, terminal, is_process=arguments is None)
    if arguments is None:
        end_without_threads(status)
    return status


def _run(given: Sequence[str], traceback: bool, interrupted: list[int], terminal: Streams, *, is_process: bool) -> int:
    try:
        options = parse(given)
        for file in getattr(options, "plugins", ()):
            add_file(file)
        status = _status(options)
        terminal.finish()
        return status
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        if isinstance(error, KeyboardInterrupt) or interrupted:
            if is_process:
                ignore_further()
            with suppress(OSError):  # the terminal may be gone
                print("stopped; run the same command again to go on", file=sys.stderr, flush=True)
            return 128 + (interrupted[0] if interrupted else signal.SIGINT)
        if traceback:
            raise
        if exhausted := out_of_memory(error):
            print(f"error: {printable(exhausted)}", file=sys.stderr)
            return 1
        if isinstance(error, DovetailError):
            print(f"error: {printable(error)}", file=sys.stderr)
            return 1
        if isinstance(error, OSError) and error.errno in DISK:
            what = f"'{error.filename}'" if error.filename else f"a file ({FLAG} shows which)"
            print(f"error: {printable(what)} cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        said = f"{type(error).__name__}: {error}".replace("\n", " ")
        whose = _blamed(error)
        print(f"error: {printable(whose or f'unforeseen, {said}')}; {FLAG} shows where", file=sys.stderr)
        return 1


def _status(options: argparse.Namespace) -> int:
    """Execute the command; a `sys.exit()` in a plugin must not look like success."""
    try:
        return options.run(options) or 0
    except SystemExit as error:
        if error.code:
            raise
        raise RunError(
            f"a plugin has called sys.exit() or os._exit(0) in the middle of the command; {FLAG} shows where"
        ) from error


def _blamed(error: BaseException) -> str:
    """Return `NAME of DISTRIBUTION raised ERROR [FILE:LINE]` if a third party's component raised it."""
    with suppress(Exception):  # the registry itself may be what raised
        return blamed(error, [each for each in current().components() if each.origin.distribution != ENGINE])
    return ""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the attribute `run` of the result is the function that executes the command."""
    commands = collect(GROUPS)
    return parser_of(commands).parse_args(commands.spell_out([word for word in arguments if word != FLAG]))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    return parser_of(collect(GROUPS))


def _format_warning(message: Warning | str, category: type[Warning], *where: Any) -> str:
    """Format a warning that is meant for the user as one line, and others as Python does."""
    if issubclass(category, DovetailWarning):
        return f"warning: {printable(message)}\n"
    return _FORMAT(message, category, *where)
