"""Write what a translation has found as a gin file."""

from __future__ import annotations

import textwrap

from dovetail.config.types import literal
from dovetail.errors import printable
from dovetail_lab.importing.sheet import Blank, Sheet

COLUMN = 46
WIDTH = 120


def written(sheet: Sheet, source: str) -> str:
    """Return the gin file: a line for each setting with where it comes from, then what could not be carried."""
    lines = [
        f"# From {sheet.peer}'s settings in {_in_one_line(source)}, translated by `dovetail import-config`.",
        "# Each line says which setting it comes from. What could not be carried is at the end, with the reason.",
    ]
    for line, after in zip(sheet.lines, [*sheet.lines[1:], None], strict=True):
        value = f"%{line.value.name}" if isinstance(line.value, Blank) else literal(line.value)
        text = f"{line.target} = {value}"
        if line.target:
            lines.append(f"{text + ' ':<{COLUMN}}# {line.comment}" if line.comment else text)
        elif after is not None and after.target:  # a heading with something under it
            lines += ["", f"# {line.comment}"]
    if sheet.left:
        lines += ["", "# Not carried over"]
        for name, why in sheet.left.items():
            given = sheet.given[name]
            said = _in_one_line(f"{name} = {_shown(given.value)} ({given.place}): {why}")
            lines += textwrap.wrap(said, WIDTH, initial_indent="#   ", subsequent_indent="#     ")
    return "\n".join(lines) + "\n"


def _in_one_line(comment: str) -> str:
    """Names of files and settings may have line breaks, after which gin would read on."""
    return " ".join(printable(comment).split())


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python does not write integers of more than some thousand digits
        return "..."
