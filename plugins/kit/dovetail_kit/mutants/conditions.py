"""What could be otherwise in a condition: its opposite, another bound, a part for the whole, or one left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.nodes import joined, name_of
from dovetail_kit.mutants.numbers import one_fewer

OPPOSITES: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
BOUNDARIES: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
CHOICE: Final = re.compile(r"(^|_)(split|role|finish)$")
"""What is called so is one of a few words, none of which is a part of another."""


def is_condition(node: ast.AST) -> bool:
    """Return whether two conditions are joined, or two sets of bits."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)


def without_a_condition(node: ast.BinOp | ast.BoolOp | ast.UnaryOp) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a condition of several in which one makes no difference, and one that is not the opposite."""
    holds = isinstance(node.op, ast.BitAnd | ast.And)
    match node:
        case ast.BoolOp(values=values):
            for number in range(len(values)):
                yield node, "values", [ast.Constant(holds), *values[:number], *values[number + 1 :]]
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            for side in ("left", "right"):
                yield node, side, joined(getattr(node, side), ast.BitOr() if holds else ast.BitAnd(), holds)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield node, "operand", ast.UnaryOp(op=node.op, operand=node.operand)


def other_comparisons(node: ast.Compare, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield the opposite of a comparison, other bounds, and a part of a text for the whole."""
    match node:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            yield node, "left", ast.BoolOp(op=ast.Or(), values=[left, ast.Constant(None)])
        case ast.Compare(ops=[operator], comparators=[right]):
            counts = any(one_fewer(each) for each in (node.left, right))
            if isinstance(operator, ast.Eq) and counts:
                yield from ((node, "ops", [bound]) for bound in (ast.GtE(), ast.LtE()))
            elif isinstance(operator, ast.Eq) and _may_be_contained(node, known):
                yield node, "ops", [ast.In()]
            if isinstance(operator, ast.In) and _may_have_parts(node, known):
                yield node, "comparators", [_containing(node.left, right)]
            for table in (OPPOSITES, BOUNDARIES):
                if type(operator) in table:
                    yield node, "ops", [table[type(operator)]()]
            if isinstance(operator, ast.GtE | ast.Lt) and (number := _several(right)):
                yield node, "comparators", [ast.Constant(number - 1)]


def _may_be_contained(node: ast.Compare, known: Known) -> bool:
    """Return whether no side is a number, or one of a few words, so that one may be a part of the other."""
    return not any(_is_number(each) or _is_choice(each, known) for each in (node.left, *node.comparators))


def _may_have_parts(node: ast.Compare, known: Known) -> bool:
    """Return whether something is looked for among what has a name, and no values by name."""
    name = name_of(node.comparators[0])
    return bool(name) and name not in known.mappings and not isinstance(node.left, ast.Constant)


def _containing(left: ast.expr, known: ast.expr) -> ast.expr:
    """Return a list that has what stands on the left if one of those that are known is a part of it."""
    return ast.parse(
        f"[{ast.unparse(left)} for _ in {ast.unparse(known)} if _ in {ast.unparse(left)}]", mode="eval"
    ).body


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Constant) and not isinstance(node.value, str))


def _is_choice(node: ast.expr, known: Known) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    name = str(key.value) if isinstance(key, ast.Constant) else name_of(node)
    return name in known.choices or bool(CHOICE.search(name))


def _several(node: ast.AST) -> int:
    """Return a whole number above one; 0 for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value if node.value > 1 else 0
    return 0
