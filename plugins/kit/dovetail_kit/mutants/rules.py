"""What could be otherwise in a node of code: another operator, function or variable, a bound left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from dovetail_kit.mutants.conditions import is_condition, other_comparisons, without_a_condition
from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.masks import without_a_mask
from dovetail_kit.mutants.names import Partners
from dovetail_kit.mutants.nodes import is_one, joined, name_of
from dovetail_kit.mutants.numbers import BOUNDING, changes_of_numbers, other_number, without_its_complement
from dovetail_kit.mutants.patterns import is_pattern, other_patterns

OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.USub: ast.UAdd,
}
_PAIRS: Final = (
    ("maximum", "minimum"),
    ("max", "min"),
    ("sum", "mean"),
    ("any", "all"),
    ("argmax", "argmin"),
    ("std", "var"),
    ("floor", "ceil"),
    ("startswith", "endswith"),
    ("find", "rfind"),
    ("partition", "rpartition"),
    ("bisect_left", "bisect_right"),
)
AS_IT_IS: Final = ("stop_gradient", "square", "sqrt")
"""Functions of one argument that may have been forgotten."""
_OPERATIONS: Final = (("lt", "le"), ("gt", "ge"), ("add", "sub"), ("mul", "truediv"), ("and_", "or_"))
OPERATIONS: Final = {one: other for pair in _OPERATIONS for one, other in (pair, pair[::-1])}
"""Those of the module `operator`."""
FUNCTIONS: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])} | {
    "abs": "positive",
    "fullmatch": "match",
    "match": "search",
    "search": "match",
    "lower": "__str__",
    "casefold": "__str__",
}
BUILTINS: Final = {
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "abs": "float",
    "sorted": "list",
    "reversed": "list",
    "set": "list",
}


def changes(node: ast.expr | ast.stmt, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield what could be otherwise in a node: it or a node of it, the name of a field, and another value of that."""
    yield from _other_operators(node, known)
    yield from _other_functions(node)
    yield from changes_of_numbers(node, known)
    yield from without_a_mask(node)
    yield from _as_it_was(node)
    yield from _other_names(node, known.partners)


def _other_operators(node: ast.AST, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield other operators, ends and constants."""
    match node:
        case ast.BinOp(op=ast.Pow()):
            yield node, "right", ast.Constant(1)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            nearest = ast.Name(id="round", ctx=ast.Load())
            ratio = ast.BinOp(left=left, op=ast.Div(), right=right)
            yield node, "left", ast.BinOp(ast.Call(nearest, [ratio], []), ast.Mult(), right)
        case ast.BinOp() | ast.AugAssign() | ast.UnaryOp() if type(node.op) in OPERATORS and not is_condition(node):
            if not _joins_text(node):
                yield node, "op", OPERATORS[type(node.op)]()
            yield from without_its_complement(node)
        case ast.BinOp() | ast.BoolOp() | ast.UnaryOp():
            yield from without_a_condition(node)
        case ast.Compare():
            yield from other_comparisons(node, known)
        case ast.Subscript() if not _is_shape(node.value) and (end := _other_end(node.slice)):
            yield node, "slice", end
        case ast.Constant() if (other := other_number(node.value)) is not None:
            yield node, "value", other


def _other_functions(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield the opposite of a function, a text that is left as it is, and a choice that is always the same."""
    if isinstance(node, ast.Call) and is_pattern(node):
        yield from other_patterns(node)
    match node:
        case ast.Call(keywords=[ast.keyword(arg="key" | "reverse"), *others]):
            yield node, "keywords", others
    match node:
        case ast.Call() if len(_compared(node)) == 2:
            pass  # an example that notices either of them alone notices the opposite
        case ast.Call(func=function, args=[_]) if name_of(function) in AS_IT_IS:
            yield node, "func", ast.parse("lambda x: x", mode="eval").body  # of a gradient an example must notice
        case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
            yield node.func, "id", BUILTINS[name]
        case ast.Call(func=ast.Attribute(attr=name)) if name in FUNCTIONS:
            yield node.func, "attr", FUNCTIONS[name]
            if name in ("startswith", "endswith"):
                yield node.func, "attr", "__contains__"  # at any place
        case ast.Call(
            func=ast.Attribute(attr="group" | "start" | "end" | "span"), args=[ast.Constant(value=int(number))]
        ):
            if number:
                yield node, "args", []  # the whole match
        case ast.Attribute(value=ast.Name(id="operator"), attr=name) if name in OPERATIONS:
            yield node, "attr", OPERATIONS[name]
        case ast.Call(func=ast.Attribute(attr="strip" | "lstrip" | "rstrip"), args=[]):
            yield node, "args", [ast.Constant("")]
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, *choices]) if choices and not is_divisor(node):
            yield from _without_its_guard(node, condition, choices)


def _as_it_was(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield an assignment that keeps what was there, a method that is not called, and a bound that is left out."""
    match node:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
            before = ast.parse(ast.unparse(target), mode="eval").body
            if ast.dump(before) != ast.dump(value):
                yield node, "value", before
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            yield node, "value", method
        case ast.Call():
            yield from ((node, "args", [each, each]) for each in _compared(node))
        case ast.For(body=body) | ast.While(body=body) | ast.If(body=body):
            for number, each in enumerate(body):
                if isinstance(each, ast.Continue | ast.Break):
                    yield node, "body", [*body[:number], ast.Pass(), *body[number + 1 :]]


def _other_names(node: ast.AST, partners: Partners) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield other variables of the same sort in the place of one."""
    for other in partners.get(node, ()):
        match node:
            case ast.Name():
                yield node, "id", other
            case ast.Attribute():
                yield node, "attr", other
            case ast.Subscript(slice=key):
                yield key, "value", other


def _compared(node: ast.Call) -> list[ast.expr]:
    """Return the two values of which one is taken, without constants; none of a guard against a division by zero."""
    if name_of(node.func) in BOUNDING and len(node.args) == 2 and not any(map(_keeps_from_zero, node.args)):
        return [each for each in node.args if not isinstance(each, ast.Constant)]
    return []


def _keeps_from_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and 0 < node.value <= 1


def _without_its_guard(
    node: ast.Call, condition: ast.expr, choices: list[ast.expr]
) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a choice that is always the first one; always the second one, too, unless an example sees a constant."""
    yield node, "args", [joined(condition, ast.BitOr(), True), *choices]
    if not any(isinstance(choice, ast.Constant) for choice in choices):
        yield node, "args", [joined(condition, ast.BitAnd(), False), *choices]


def is_divisor(node: ast.AST) -> bool:
    """Return whether it is `where(x > 0, x, 1)`: what stands in for a zero that nothing is divided by is not seen."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="where"), args=[ast.Compare(left=left, comparators=[zero]), taken, other]
        ):
            is_zero = isinstance(zero, ast.Constant) and zero.value == 0
            return is_zero and is_one(other) and ast.dump(left) == ast.dump(taken)
    return False


def _is_shape(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _other_end(index: ast.expr) -> ast.expr | None:
    """Return the index of the last item for that of the first, and the other way round; None for others."""
    if isinstance(index, ast.Constant) and index.value == 0 and not isinstance(index.value, bool):
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(1))
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub) and is_one(index.operand):
        return ast.Constant(0)
    return None


def _joins_text(node: ast.AST) -> bool:
    """Return whether an operator has a text beside it, as in `folder / 'name'`."""
    texts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.JoinedStr | ast.Constant)]
    return any(isinstance(part, ast.JoinedStr) or isinstance(part.value, str) for part in texts)
