"""What the rules of changes ask of a node, and nodes made of others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any


def name_of(node: ast.AST) -> str:
    """Return the name of a variable, an attribute or a function; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_one(node: ast.AST) -> bool:
    """Return whether it is the number 1."""
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def joined(condition: ast.expr, operator: ast.operator, value: bool) -> ast.expr:
    """Return a condition that always holds, or never, and has the shape that it had."""
    return ast.BinOp(left=condition, op=operator, right=ast.Constant(value))


def with_other_parts(
    node: ast.AST, change: Callable[[ast.expr], ast.expr | None]
) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield what stands in the place of a part, where a change has something to put there."""
    for field, part in ast.iter_fields(node):
        if field in ("left", "right") and (other := change(part)):
            yield node, field, other
        parts = part if field in ("comparators", "args") else []
        for number, each in enumerate(parts):
            if other := change(each):
                yield node, field, [*parts[:number], other, *parts[number + 1 :]]
