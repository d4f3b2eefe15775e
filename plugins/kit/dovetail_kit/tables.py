"""Tables of text, whose cells are folded where a table is wider than the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

ENDLESS: Final = 10_000
"""The width of what is not a terminal, in characters: a file or a pipe has no width to fold to."""


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, the first of which has the titles; only a terminal has a width to fold to."""
    print(*folded(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else 0), sep="\n")


def folded(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table that is at most `width` wide; 0: as wide as it gets.

    >>> print(*folded([("field", "read by"), ("logps", "train.policy_loss = ppo, train.kl = k1")], 33), sep="\\n")
    field  read by
    logps  train.policy_loss = ppo,
           train.kl = k1
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titles, *rest = rows
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for title in titles:
        table.add_column(Text(title), overflow="fold")
    for row in rest:
        table.add_row(*map(Text, row))
    console = Console(width=width or ENDLESS, color_system=None)
    with console.capture() as said:
        console.print(table)
    return [line.rstrip() for line in said.get().splitlines()]
