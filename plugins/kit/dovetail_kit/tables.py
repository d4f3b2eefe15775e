"""Tables of text, folded where they are wider than the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

GAP: Final = "  "
NARROWEST: Final = 24
"""The width that the last column of a table must have left; with less, each row becomes a paragraph."""

Row = Sequence[str]


def print_table(rows: Sequence[Row]) -> None:
    """Print rows, the first of which has the titles; only a terminal has a width to fold to."""
    for line in folded(rows, shutil.get_terminal_size((0, 0)).columns):
        print(line)


def folded(rows: Sequence[Row], width: int) -> list[str]:
    """Return the lines of a table that is at most `width` wide, where its words allow that; 0: as wide as it gets.

    >>> print(*folded([("field", "read by"), ("logps", "train.policy_loss = ppo, train.kl = k1")], 33), sep="\\n")
    field  read by
    logps  train.policy_loss = ppo,
           train.kl = k1
    """
    columns = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    before = sum(columns) + len(GAP) * len(columns)
    lines = [_line(row, columns) for row in rows]
    if not width or max(map(len, lines)) <= width:
        return lines
    if width - before >= NARROWEST:
        return [line for row in rows for line in _hanging(row, columns, width, before)]
    titles, *rest = rows
    return [line for row in rest for line in _paragraph(titles, row, width)]


def _line(row: Row, columns: Sequence[int]) -> str:
    return GAP.join(cell.ljust(size) for cell, size in zip(row, (*columns, 0), strict=True)).rstrip()


def _hanging(row: Row, columns: Sequence[int], width: int, before: int) -> Iterator[str]:
    """Yield a row whose last column is folded."""
    first, *more = _wrapped(row[-1], width - before) or [""]
    yield _line((*row[:-1], first), columns)
    yield from (" " * before + line for line in more)


def _paragraph(titles: Row, row: Row, width: int) -> Iterator[str]:
    """Yield a row as its first cell, and its other cells below, each after its title."""
    yield f"{titles[0]} {row[0]}"
    for title, cell in zip(titles[1:], row[1:], strict=True):
        lines = _wrapped(f"{title}: {cell}", width - 2 * len(GAP))
        yield from (f"{GAP * (1 + bool(number))}{line}" for number, line in enumerate(lines))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
