"""All commands: the engine's own, and those that plugins add with the hook `dovetail_commands`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import pluggy

from dovetail.cli.options import Command, Commands
from dovetail.errors import PluginError
from dovetail.registry import plugin_manager
from dovetail.registry.calls import ask_all
from dovetail.registry.compatibility import ENGINE


def collect(own: Iterable[Callable[[Commands], None]], manager: pluggy.PluginManager | None = None) -> Commands:
    """Return the commands of the engine, then those of each plugin.

    A name has one owner. What has the name of one of dovetail's own commands is left out, and the user is told; a name
    of two plugins stays in the list, and says whose it is when it is called.
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
                plugin.warn(f"it adds a command 'dovetail {name}', which dovetail has itself; it is left out")
            else:
                commands.members[name] = _contested(there, command)
    return commands


def _contested(first: Command, second: Command) -> Command:
    """What stands where two plugins add a command of one name: it answers with whose it is, whatever is typed."""
    owners = first.owners + second.owners
    parser = argparse.ArgumentParser(prog=first.parser.prog, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")

    def refuse(options: argparse.Namespace) -> int:
        raise PluginError(
            f"the command '{parser.prog}' is added by {' and by '.join(owners)}, so that none of them is run;"
            f" switch one off, as in DOVETAIL_DISABLE={owners[-1]}"
        )

    parser.set_defaults(run=refuse)
    return Command(first.name, "refused, as several plugins add it", parser, owners)


def parser_of(commands: Commands) -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="dovetail",
        description="Reinforcement-learning post-training of language models from named, replaceable components.",
    )
    commands.install(parser)
    return parser
