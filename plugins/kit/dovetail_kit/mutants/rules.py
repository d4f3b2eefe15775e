"""What could be otherwise in a node of code: another operator, number or function, a bound or a mask left out."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from dovetail_kit.mutants.names import MASK, Partners, name_of
from dovetail_kit.mutants.patterns import is_pattern, other_patterns

OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.USub: ast.UAdd,
}
BOUNDARIES: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
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
NEGLIGIBLE: Final = 1e-5
"""Up to this size a number only keeps a division from being by zero, and no example will show it."""
COUNT: Final = re.compile(r"(^|_)(n|num|counts?|sizes?|lengths?)$")
"""What is called so is a number of things, of which there may be one fewer."""
CHOICE: Final = re.compile(r"(^|_)(split|role|finish)$")
"""What is called so is one of a few words, none of which is a part of another."""
BOUNDING: Final = ("max", "min", "maximum", "minimum")
OF_COUNTS: Final = ("range", *BOUNDING)
"""Functions among whose arguments a count may be."""
SHARE: Final = re.compile(r"Interval\(g[et]=0(\.0)?, l[et]=1(\.0)?\)")
"""The range of a share, in whose place the rest of the whole may be."""
Definition = ast.FunctionDef | ast.ClassDef


@attrs.frozen
class Known:
    """What is known of the names in some definitions, and of those in the one in which changes are looked for.

    Attributes:
        floats: those that are not whole.
        shares: those among `floats` that are from 0 to 1.
        choices: those that are one of a few words.
        mappings: arguments, of any function, that have values by name: no name is a part of another there.
        fields: the names and annotations of what the objects of a class have.
        partners: for what is read in a function, what else of its sort it could read.
    """

    floats: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
    choices: frozenset[str] = frozenset()
    mappings: frozenset[str] = frozenset()
    fields: Mapping[str, str] = attrs.field(factory=dict)
    partners: Partners = attrs.field(factory=dict)

    @classmethod
    def of(cls, definitions: Iterable[Definition]) -> Known:
        """Find those of functions, which are keyword-only, and the fields of classes."""
        found = {
            name: ast.unparse(hint)
            for definition in definitions
            for name, hint in announced(definition)
            if hint is not None
        }
        floats = {name: hint for name, hint in found.items() if re.search(r"\bfloat\b", hint)}
        return cls(
            floats=frozenset(floats),
            shares=frozenset(name for name, hint in floats.items() if SHARE.search(hint)),
            choices=frozenset(name for name, hint in found.items() if re.search(r"\bLiteral\[", hint)),
            mappings=frozenset(
                each.arg
                for definition in definitions
                for each in ast.walk(definition)
                if isinstance(each, ast.arg)
                and re.match(r"(Mutable)?Mapping\b|dict\b", ast.unparse(each.annotation or each))
            ),
        )


def announced(definition: Definition) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names and annotations of hyperparameters."""
    if isinstance(definition, ast.FunctionDef):
        yield from ((each.arg, each.annotation) for each in definition.args.kwonlyargs)
    for node in definition.body if isinstance(definition, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation


def changes(node: ast.expr | ast.stmt, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield what could be otherwise in a node: it or a node of it, the name of a field, and another value of that."""
    yield from _other_operators(node, known)
    yield from _other_functions(node)
    yield from _changes_of_numbers(node, known)
    yield from _without_a_mask(node)
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
        case ast.BinOp() | ast.AugAssign() | ast.UnaryOp() if type(node.op) in OPERATORS and not _is_condition(node):
            if not _joins_text(node):
                yield node, "op", OPERATORS[type(node.op)]()
            yield from _without_its_complement(node)
        case ast.BinOp() | ast.BoolOp() | ast.UnaryOp():
            yield from _without_a_condition(node)
        case ast.Compare():
            yield from _other_comparisons(node, known)
        case ast.Subscript() if not _is_shape(node.value) and (end := _other_end(node.slice)):
            yield node, "slice", end
        case ast.Constant() if (other := _other(node.value)) is not None:
            yield node, "value", other


def _is_condition(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)


def _without_a_condition(node: ast.BinOp | ast.BoolOp | ast.UnaryOp) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a condition of several in which one makes no difference, and one that is not the opposite."""
    holds = isinstance(node.op, ast.BitAnd | ast.And)
    match node:
        case ast.BoolOp(values=values):
            for number in range(len(values)):
                yield node, "values", [ast.Constant(holds), *values[:number], *values[number + 1 :]]
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            for side in ("left", "right"):
                yield node, side, _joined(getattr(node, side), ast.BitOr() if holds else ast.BitAnd(), holds)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield node, "operand", ast.UnaryOp(op=node.op, operand=node.operand)


def _other_comparisons(node: ast.Compare, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield the opposite of a comparison, other bounds, and a part of a text for the whole."""
    match node:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            yield node, "left", ast.BoolOp(op=ast.Or(), values=[left, ast.Constant(None)])
        case ast.Compare(ops=[operator], comparators=[right]):
            counts = any(_one_fewer(each) for each in (node.left, right))
            if isinstance(operator, ast.Eq) and counts:
                yield from ((node, "ops", [bound]) for bound in (ast.GtE(), ast.LtE()))
            elif isinstance(operator, ast.Eq) and _may_be_contained(node, known):
                yield node, "ops", [ast.In()]
            if isinstance(operator, ast.In) and _may_have_parts(node, known):
                yield node, "comparators", [_containing(node.left, right)]
            for table in (OPERATORS, BOUNDARIES):
                if type(operator) in table:
                    yield node, "ops", [table[type(operator)]()]
            if isinstance(operator, ast.GtE | ast.Lt) and (number := _several(right)):
                yield node, "comparators", [ast.Constant(number - 1)]


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


def _changes_of_numbers(node: ast.AST, known: Known) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield one fewer for a count, the rest of the whole for a share, and one bound or both for both or one."""
    match node:
        case ast.BinOp(op=ast.Sub(), left=left) if _is_one(left):
            pass  # 1 - x is changed as a whole
        case ast.BinOp() | ast.Compare():
            yield from _with_other_parts(node, _one_fewer) if not _is_next(node) else ()
            yield from _with_other_parts(node, functools.partial(_rest, known=known))
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
            yield from _with_other_parts(node, _one_fewer) if name_of(function) in OF_COUNTS else ()
            yield from _with_other_parts(node, functools.partial(_rest, known=known))


def _without_a_mask(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a call or a product in which a mask holds everywhere."""
    match node:
        case ast.Call(func=ast.Attribute(attr="where")):
            pass  # its condition is changed as a guard
        case ast.Call(func=function, keywords=keywords):
            yield from _with_other_parts(node, _everywhere)
            for keyword in keywords:
                if keyword.arg == "where":
                    yield keyword, "value", _joined(keyword.value, ast.BitOr(), True)
            if isinstance(function, ast.Attribute) and (everywhere := _everywhere(function.value)):
                yield function, "value", everywhere
        case ast.BinOp(op=ast.Mult()):
            yield from _with_other_parts(node, _everywhere)


def held_everywhere(new: Any) -> str:
    """Return the name of the mask that holds everywhere in a change; empty if there is none."""
    for part in new if isinstance(new, list) else [new]:
        match part:
            case ast.BinOp(left=mask, op=ast.BitOr(), right=ast.Constant(value=True)) if MASK.search(name_of(mask)):
                return name_of(mask)
    return ""


def masks_of_results(function: ast.FunctionDef) -> frozenset[str]:
    """Return the name of the mask outside of which nothing counts that a function computes, if there is one."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    names = {_selected(value)[1] for value in values}
    return frozenset(names - {""}) if len(names) == 1 else frozenset()


def masks_inside(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the part of a call that counts within a mask alone, with the name of the mask."""
    part, mask = _selected(node)
    if mask and isinstance(node, ast.Call):
        yield part, mask


def _selected(node: ast.AST) -> tuple[ast.AST, str]:
    """Return what counts within a mask alone in a result, and the name of the mask; empty if there is none."""
    match node:
        case ast.UnaryOp(operand=value) | ast.Tuple(elts=[value, *_]):
            return _selected(value)
        case ast.Call(func=function, args=[mask, value, _]) if name_of(function) == "where" and MASK.search(
            name_of(mask)
        ):
            return value, name_of(mask)
        case ast.Call(func=function, args=[value, mask]) if name_of(function) == "masked" and MASK.search(
            name_of(mask)
        ):
            return value, name_of(mask)
    return node, ""


def _everywhere(part: ast.expr) -> ast.expr | None:
    return _joined(part, ast.BitOr(), True) if MASK.search(name_of(part)) else None


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


def _is_next(node: ast.AST) -> bool:
    """Return whether it is n + 1 or n - 1, in which the number is changed."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_one(node.right)


def _with_other_parts(
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


def _one_fewer(part: ast.expr) -> ast.expr | None:
    counted = name_of(part.func) if isinstance(part, ast.Call) else ""
    of_a_mask = counted == "sum" and any(MASK.search(name_of(each)) for each in ast.walk(part))
    if counted == "len" or of_a_mask or COUNT.search(name_of(part)):
        return ast.BinOp(left=part, op=ast.Sub(), right=ast.Constant(1))
    return None


def _rest(part: ast.expr, known: Known) -> ast.expr | None:
    if name_of(part) in known.shares:
        return ast.BinOp(left=ast.Constant(1), op=ast.Sub(), right=part)
    return None


def _renamed(function: ast.Attribute, name: str) -> ast.Attribute:
    return ast.Attribute(value=function.value, attr=name, ctx=ast.Load())


def _without_its_complement(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield x for 1 - x."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_one(node.left):
        yield node, "right", ast.BinOp(left=ast.Constant(1), op=ast.Sub(), right=node.right)


def _without_its_guard(
    node: ast.Call, condition: ast.expr, choices: list[ast.expr]
) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a choice that is always the first one; always the second one, too, unless an example sees a constant."""
    yield node, "args", [_joined(condition, ast.BitOr(), True), *choices]
    if not any(isinstance(choice, ast.Constant) for choice in choices):
        yield node, "args", [_joined(condition, ast.BitAnd(), False), *choices]


def is_divisor(node: ast.AST) -> bool:
    """Return whether it is `where(x > 0, x, 1)`: what stands in for a zero that nothing is divided by is not seen."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="where"), args=[ast.Compare(left=left, comparators=[zero]), taken, other]
        ):
            is_zero = isinstance(zero, ast.Constant) and zero.value == 0
            return is_zero and _is_one(other) and ast.dump(left) == ast.dump(taken)
    return False


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def _several(node: ast.AST) -> int:
    """Return a whole number above one; 0 for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value if node.value > 1 else 0
    return 0


def _is_shape(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _other_end(index: ast.expr) -> ast.expr | None:
    """Return the index of the last item for that of the first, and the other way round; None for others."""
    if isinstance(index, ast.Constant) and index.value == 0 and not isinstance(index.value, bool):
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(1))
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub) and _is_one(index.operand):
        return ast.Constant(0)
    return None


def _joined(condition: ast.expr, operator: ast.operator, value: bool) -> ast.expr:
    """Return a condition that always holds, or never, and has the shape that it had."""
    return ast.BinOp(left=condition, op=operator, right=ast.Constant(value))


def _joins_text(node: ast.AST) -> bool:
    """Return whether an operator has a text beside it, as in `folder / 'name'`."""
    texts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.JoinedStr | ast.Constant)]
    return any(isinstance(part, ast.JoinedStr) or isinstance(part.value, str) for part in texts)


def _other(value: Any) -> Any:
    """Return another number, or None for what is not to be changed."""
    if isinstance(value, bool):
        return not value
    if not isinstance(value, int | float) or 0 < abs(value) <= NEGLIGIBLE:
        return None
    return value + 1 if isinstance(value, int) or not value else 2 * value
