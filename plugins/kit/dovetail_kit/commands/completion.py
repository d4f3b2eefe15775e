"""`dovetail completion`: print the script that enables shell completion."""

from __future__ import annotations

import argparse
from typing import Final

from dovetail.cli.options import Commands

SHELLS: Final = ("bash", "zsh", "fish")
WHERE: Final = """\
bash: eval "$(dovetail completion bash)" in ~/.bashrc;
zsh: eval "$(dovetail completion zsh)" in ~/.zshrc, after compinit;
fish: dovetail completion fish > ~/.config/fish/completions/dovetail.fish
"""


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "print the script that makes a shell complete `dovetail` commands on Tab"
    command = commands.add_parser(
        "completion",
        help=summary,
        description=summary,
        epilog=WHERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shell", choices=SHELLS, help="which shell")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a shell's script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["dovetail"], shell=options.shell))
    return 0
