"""The interface for adding commands, and options that several commands share.

A module of commands, whether the engine's or a plugin's, has a function `add(commands: Commands)`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from dovetail.errors import PluginError, nearest
from dovetail.registry import plugin_manager

CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")


class Parser(argparse.ArgumentParser):
    """A parser that gives the nearest choice, such as the command that a misspelt one was meant to be."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - argparse has overloads
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse what a command does not know with the usage of this command, not with that of `dovetail`."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            known = [word for word in self._option_string_actions if word.startswith("--")]
            self.error(f"unrecognized arguments: {' '.join(unknown)}.{nearest(unknown[0], known)}".removesuffix("."))
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with status 2."""
        choice = CHOICE.search(message)
        super().error(message + (nearest(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""))


def given_path(text: str) -> Path:
    """Read the path of a result; an empty one would be the current folder, and is mostly a shell variable not set.

    A path in other bytes than UTF-8 is refused: orbax cannot write into it.
    """
    if not text:
        raise argparse.ArgumentTypeError("it is empty; '.' is the folder where you are")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8; choose another name") from error
    return Path(text)


@attrs.define
class Commands:
    """The commands of `dovetail`, or those of a group such as `dovetail sweep`.

        board = commands.add_parser("leaderboard", help="rank the runs in a folder")
        board.add_argument("folder", type=Path)
        board.set_defaults(run=leaderboard)

    `run` takes the parsed options and returns the exit status; None means 0. Import heavy libraries inside it, so that
    other commands do not wait for them.

    Attributes:
        owner: the distribution that adds the commands.
        prog: the words before the name of a command.
        default: for a group, the command to run if none is given.
        members: the commands, by name.
    """

    owner: str
    prog: str = "dovetail"
    default: str | None = None
    members: dict[str, Command] = attrs.field(factory=dict)

    def add_parser(
        self, name: str, *, help: str, description: str | None = None, **options: Any
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser, to which arguments can be added.

        Args:
            name: the word that the user types.
            help: one line of plain text for the list of commands.
            description: the first paragraph of `--help`; by default `help`.
            options: further arguments for `argparse.ArgumentParser`.

        Raises:
            PluginError: if the name is taken, or is not a single word.
        """
        if name in self.members:
            raise PluginError(f"the command '{self.prog} {name}' is added twice")
        if not name or name.startswith("-") or len(name.split()) != 1:
            raise PluginError(f"'{name}' cannot be the name of a command; use one word")
        parser = Parser(prog=f"{self.prog} {name}", description=description or help, **options)
        parser.set_defaults(run=_nothing_to_run)
        self.members[name] = Command(name, help, parser, (self.owner,))
        return parser

    def add_group(self, name: str, *, help: str, default: str | None = None, **options: Any) -> Commands:
        """Add a command that groups others, and return the `Commands` to add them to.

        Args:
            name: the word that the user types.
            help: one line of plain text for the list of commands.
            default: the member to run if none is given: with "run", `dovetail sweep mine.gin` is short for
                `dovetail sweep run mine.gin`.
            options: further arguments for `argparse.ArgumentParser`.

        Raises:
            PluginError: as for `add_parser`.
        """
        parser = self.add_parser(name, help=help, **options)
        group = Commands(self.owner, parser.prog, default)
        self.members[name] = attrs.evolve(self.members[name], group=group)
        return group

    def install(self, parser: argparse.ArgumentParser) -> None:
        """Add these commands to a parser as its subcommands."""
        # the parsers are made beforehand: argparse could not remove one that it has added for a plugin that then fails
        commands = parser.add_subparsers(
            required=True,
            metavar="COMMAND",
            parser_class=lambda *, made, **_: made,  # pyright: ignore[reportArgumentType]
        )
        for command in self.members.values():
            if command.group:
                command.group.install(command.parser)
            commands.add_parser(command.name, help=command.listed.replace("%", "%%"), made=command.parser)

    def spell_out(self, arguments: Sequence[str]) -> list[str]:
        """Insert the default commands that a command line omits.

        >>> commands = Commands("dovetail")
        >>> sweep = commands.add_group("sweep", help="train many variants", default="run")
        >>> run, status = sweep.add_parser("run", help="run it"), sweep.add_parser("status", help="show it")
        >>> commands.spell_out(["sweep", "mine.gin", "--jobs", "2"])
        ['sweep', 'run', 'mine.gin', '--jobs', '2']
        >>> commands.spell_out(["sweep", "status", "sweeps/mine"])
        ['sweep', 'status', 'sweeps/mine']
        """
        first, *rest = [*arguments] or [""]
        command = self.members.get(first)
        if command and command.group:
            return [first, *command.group.spell_out(rest)]
        if command or self.default is None or first in ("-h", "--help"):
            return [*arguments]
        return [self.default, *arguments]


@attrs.frozen
class Command:
    """A command or a group of commands, and the distributions that add it; more than one is a conflict."""

    name: str
    summary: str
    parser: argparse.ArgumentParser
    owners: tuple[str, ...]
    group: Commands | None = None

    @property
    def listed(self) -> str:
        """Its line in the list of commands: the summary and, for a plugin's command, the owners."""
        return self.summary if self.owners == ("dovetail",) else f"{self.summary}  [{', '.join(self.owners)}]"


def _nothing_to_run(options: argparse.Namespace) -> int:
    raise PluginError("this command has nothing to run; its plugin must call parser.set_defaults(run=function)")


Completer = Callable[..., list[str]]


def completed(action: argparse.Action, completer: Completer) -> None:
    """Let a function of a prefix provide the words with which a shell completes an argument."""
    action.completer = completer  # pyright: ignore[reportAttributeAccessIssue] - argcomplete reads this attribute


def _asked(what: str) -> Completer:
    """Return a function that asks all plugins for words."""

    def words(prefix: str, **_: Any) -> list[str]:
        answers: list[list[str]] = plugin_manager().hook.dovetail_completions(what=what, prefix=prefix)
        return [word for answer in answers for word in answer]

    return words


def add_config(command: argparse.ArgumentParser) -> None:
    """Add the arguments for a config and overrides: `options.config`, `options.overrides`."""
    config = command.add_argument(
        "config", nargs="?", help="a gin file, or the name of a shipped config (default: quickstart)"
    )
    completed(config, _asked("configs"))
    add_plugins(command)
    add_overrides(command)


def add_plugins(command: argparse.ArgumentParser) -> None:
    """Add the argument for single-file plugins, which are loaded before the command runs: `options.plugins`."""
    command.add_argument(
        "--plugin",
        dest="plugins",
        action="append",
        default=[],
        metavar="FILE.py",
        help="load a single-file plugin, as if it were installed; repeatable",
    )


def add_overrides(command: argparse.ArgumentParser) -> None:
    """Add the argument for overrides: `options.overrides`."""
    override = command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a binding of the config; repeatable",
    )
    completed(override, _asked("overrides"))
