"""All commands: the engine's own, and those that plugins add with the hook `dovetail_commands`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import pluggy

from dovetail.cli.options import Command, Commands, Parser
from dovetail.errors import PluginError
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_all
from dovetail.registry.compatibility import ENGINE, engine_version


def collect(own: Iterable[Callable[[Commands], None]], manager: pluggy.PluginManager | None = None) -> Commands:
    """Return the commands of the engine, then those of each plugin.

    A command with the name of a built-in one is left out, with a warning. A command that two plugins add stays in the
    list, but only reports its owners when it is called.

    Args:
        own: functions that add the engine's own commands.
        manager: holds the plugins; by default the installed ones.
    """
    commands = Commands(ENGINE)
    for add in own:
        add(commands)
    manager = manager or plugin_manager()
    for plugin, offered in ask_all(manager, "dovetail_commands", lambda plugin: Commands(plugin.distribution)):
        for name, command in offered.members.items():
            there = commands.members.get(name)
            if there is None:
                commands.members[name] = command
            elif there.owners == (ENGINE,):
                plugin.warn(f"it adds a command 'dovetail {name}', which is built in; the plugin's is left out")
            else:
                commands.members[name] = _contested(there, command)
    return commands


def _contested(first: Command, second: Command) -> Command:
    """Return a stand-in for a command that two plugins add: whatever its arguments, it reports the owners."""
    owners = first.owners + second.owners
    parser = argparse.ArgumentParser(prog=first.parser.prog, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")

    def refuse(options: argparse.Namespace) -> int:
        raise PluginError(
            f"the command '{parser.prog}' is added by {' and by '.join(owners)}, so neither is run;"
            f" switch one off, as in DOVETAIL_DISABLE={owners[-1]}"
        )

    parser.set_defaults(run=refuse)
    return Command(first.name, "refused, because several plugins add it", parser, owners)


def parser_of(commands: Commands) -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="dovetail",
        description="Reinforcement-learning post-training of language models from named, replaceable components.",
    )
    parser.add_argument("--version", action="version", version=f"dovetail {engine_version()}")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised, not only its message")
    commands.install(parser)
    return parser
