"""What could be otherwise in a regular expression: a boundary, a repetition, a choice or a flag left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

BOUNDARY: Final = re.compile(r"\\b|\(\?<?[!=](?:[^()\\]|\\.)*\)|^\^|(?<!\\)\$$")
"""What matches no text itself: it holds at the ends of a word or a line, or beside something."""
ATOM: Final = re.compile(
    r"(?P<atom>\(\?(?:<?[!=]|:|P?<\w+>|P=\w+|[a-zA-Z-]+)?|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)"
    r"(?P<many>[*+?])?(?P<lazy>[?+])?",
    re.DOTALL,
)
"""A character, a class or the beginning or end of a group, with how often it may come."""
SPACES: Final = (r"\s", " ", ".", r"[ \t]", r"[^\S\n]")
"""How many of these there may be makes rarely a difference to what is found."""


def is_pattern(node: ast.AST) -> bool:
    """Return whether it is a call of the module `re` that begins with a pattern."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="re")), args=[ast.Constant(value=str()) | ast.JoinedStr(), *_]
        ):
            return True
    return False


def other_patterns(node: ast.Call) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a pattern without a boundary, a repetition, a choice or a flag.

    An example notices of a longer word, of another place, of something that comes twice or not at all, or of capitals.
    """
    pattern = node.args[0]
    for part in pattern.values if isinstance(pattern, ast.JoinedStr) else [pattern]:
        text = part.value if isinstance(part, ast.Constant) else None
        if isinstance(text, str):
            for found in BOUNDARY.finditer(text):
                yield part, "value", text[: found.start()] + text[found.end() :]
            for found in ATOM.finditer(text):
                # x+ and x? become x, and x* becomes x+
                if found["many"] and found["atom"] not in SPACES:
                    once = "+" if found["many"] == "*" else ""
                    yield part, "value", text[: found.start("many")] + once + text[found.end("many") :]
    for number, each in enumerate(node.args[1:], 1):
        if _is_flag(each):
            yield node, "args", [*node.args[:number], *node.args[number + 1 :]]
    for keyword in node.keywords:
        if keyword.arg == "flags":
            yield node, "keywords", [each for each in node.keywords if each is not keyword]


def _is_flag(node: ast.expr) -> bool:
    flags = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "re"]
    return bool(flags) and all(each.attr.isupper() for each in flags)
