"""Tool `calculator`: exact arithmetic."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Final

from annotated_types import Ge

_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST: Final = 200
"""Characters of an expression."""


def calculator(expression: str, *, digits: Annotated[int, Ge(0)] = 6) -> str:
    """Calculate an expression of numbers, + - * / and parentheses.

    Args:
        expression: for example (12 + 30) * 2.
        digits: of a result that is not a whole number, after the point.

    Returns:
        The result, as a whole number where it is one.

    Raises:
        ValueError: for anything else than such an expression, and for a division by zero.

    >>> calculator("(12 + 30) * 2"), calculator("1 / 8")
    ('84', '0.125')
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression has {len(expression)} characters; at most {LONGEST}")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an expression of numbers, + - * / and parentheses: {expression}") from error
    except ZeroDivisionError as error:
        raise ValueError("division by zero") from error
    if value.denominator == 1:
        return str(value.numerator)
    try:
        return f"{float(value):.{digits}f}".rstrip("0").rstrip(".")
    except OverflowError as error:
        raise ValueError("the result is beyond the largest number that can be written") from error


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    raise ValueError("only numbers, + - * / and parentheses can be calculated")
