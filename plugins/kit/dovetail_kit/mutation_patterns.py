"""What could be otherwise in a regular expression: a boundary, an end or a look at what is beside it left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

BOUNDARY: Final = re.compile(r"\\b|\(\?<?[!=](?:[^()\\]|\\.)*\)|^\^|(?<!\\)\$$")
"""What matches no text itself: it holds at the ends of a word or a line, or beside something."""


def is_pattern(node: ast.AST) -> bool:
    """Return whether it is a call of the module `re` that begins with a pattern."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="re")), args=[ast.Constant(value=str()) | ast.JoinedStr(), *_]
        ):
            return True
    return False


def without_a_boundary(node: ast.Call) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield a pattern without one of its boundaries, which an example of a longer word or another place notices."""
    pattern = node.args[0]
    for part in pattern.values if isinstance(pattern, ast.JoinedStr) else [pattern]:
        text = part.value if isinstance(part, ast.Constant) else None
        if isinstance(text, str):
            for found in BOUNDARY.finditer(text):
                yield part, "value", text[: found.start()] + text[found.end() :]
