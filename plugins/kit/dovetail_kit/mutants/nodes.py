"""What the rules of changes ask of a node, and nodes made of others."""

from __future__ import annotations

import ast
import copy
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


class _Simply(ast.NodeTransformer):
    """Writes a condition that makes no difference as what it then is."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Leave out what decides nothing: True of `and`, False of `or`."""
        self.generic_visit(node)
        neutral = isinstance(node.op, ast.And)
        values = [each for each in node.values if not _is(each, neutral)]
        return values[0] if len(values) == 1 else ast.BoolOp(op=node.op, values=values or node.values)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Write (x | True) & y as y, and (x & False) | y too."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitAnd | ast.BitOr):
            return node
        kept = [each for each in (node.left, node.right) if not _is_decided(each, isinstance(node.op, ast.BitAnd))]
        return kept[0] if len(kept) == 1 else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Write not not x as x."""
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
                return inner
            case ast.UnaryOp(op=ast.Invert(), operand=ast.UnaryOp(op=ast.Invert(), operand=inner)):
                return inner
            case _:
                return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Write (x or None) is None as not x."""
        self.generic_visit(node)
        match node:
            case ast.Compare(left=ast.BoolOp(op=ast.Or(), values=[value, ast.Constant(value=None)]), ops=[ast.Is()]):
                return ast.UnaryOp(op=ast.Not(), operand=value)
            case ast.Compare(left=ast.BoolOp(op=ast.Or(), values=[value, ast.Constant(value=None)]), ops=[ast.IsNot()]):
                return value
            case _:
                return node


def _is_decided(node: ast.expr, value: bool) -> bool:
    """Return whether it is what `joined` makes of a condition that always holds, or never."""
    operator = ast.BitOr if value else ast.BitAnd
    return isinstance(node, ast.BinOp) and isinstance(node.op, operator) and _is(node.right, value)


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def told(node: ast.AST) -> str:
    """Return the code of a changed node for who reads of the change: without what decides nothing in it.

    >>> for text in ("True and b", "not not a", "(mask | True) & done", "f(mask | True, a)", "(x or None) is None"):
    ...     print(told(ast.parse(text, mode="eval").body))
    b
    a
    done
    f(mask | True, a)
    not x
    """
    return ast.unparse(ast.fix_missing_locations(_Simply().visit(copy.deepcopy(node))))
