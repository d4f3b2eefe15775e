"""What could be otherwise about a number: another one, one fewer of a count, the rest of the whole for a share."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, Final

from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.names import MASK
from dovetail_kit.mutants.nodes import is_one, name_of, with_other_parts

NEGLIGIBLE: Final = 1e-5
"""Up to this size a number only keeps a division from being by zero, and no example will show it."""
COUNT: Final = re.compile(r"(^|_)(n|num|counts?|sizes?|lengths?)$")
"""What is called so is a number of things, of which there may be one fewer."""
BOUNDING: Final = ("max", "min", "maximum", "minimum")
OF_COUNTS: Final = ("range", *BOUNDING)
"""Functions among whose arguments a count may be."""


def changes_of_numbers(node: ast.AST, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield one fewer for a count, the rest of the whole for a share, and one bound or both for both or one."""
    match node:
        case ast.BinOp(op=ast.Sub(), left=left) if is_one(left):
            pass  # 1 - x is changed as a whole
        case ast.BinOp() | ast.Compare():
            yield from with_other_parts(node, one_fewer) if not _is_next(node) else ()
            yield from with_other_parts(node, functools.partial(_rest, known=known))
        case ast.Call(func=ast.Attribute(attr="clip"), args=[value, low, high]):
            for bound, args in ((low, [value, ast.Constant(None), high]), (high, [value, low, ast.Constant(None)])):
                if any(isinstance(each, ast.Name) for each in ast.walk(bound)):
                    yield node, "args", args
        case ast.Call(func=ast.Attribute(attr="minimum") as function, args=[value, bound]) if (
            name_of(bound) in known.floats
        ):
            inverse = ast.BinOp(left=ast.Constant(1), op=ast.Div(), right=bound)
            bounded = ast.Call(func=_renamed(function, "maximum"), args=[value, inverse], keywords=[])
            yield node, "args", [bounded, bound]
        case ast.Call(func=function):
            yield from with_other_parts(node, one_fewer) if name_of(function) in OF_COUNTS else ()
            yield from with_other_parts(node, functools.partial(_rest, known=known))


def _is_next(node: ast.AST) -> bool:
    """Return whether it is n + 1 or n - 1, in which the number is changed."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and is_one(node.right)


def _rest(part: ast.expr, known: Known) -> ast.expr | None:
    if name_of(part) in known.shares:
        return ast.BinOp(left=ast.Constant(1), op=ast.Sub(), right=part)
    return None


def other_number(value: Any) -> Any:
    """Return another number, or None for what is not to be changed."""
    if isinstance(value, bool):
        return not value
    if not isinstance(value, int | float) or 0 < abs(value) <= NEGLIGIBLE:
        return None
    return value + 1 if isinstance(value, int) or not value else 2 * value


def _renamed(function: ast.Attribute, name: str) -> ast.Attribute:
    return ast.Attribute(value=function.value, attr=name, ctx=ast.Load())


def without_its_complement(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield x for 1 - x."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and is_one(node.left):
        yield node, "right", ast.BinOp(left=ast.Constant(1), op=ast.Sub(), right=node.right)


def one_fewer(part: ast.expr) -> ast.expr | None:
    """Return one fewer of what is a number of things; None for anything else."""
    counted = name_of(part.func) if isinstance(part, ast.Call) else ""
    of_a_mask = counted == "sum" and any(MASK.search(name_of(each)) for each in ast.walk(part))
    if counted == "len" or of_a_mask or COUNT.search(name_of(part)):
        return ast.BinOp(left=part, op=ast.Sub(), right=ast.Constant(1))
    return None
