"""Which other variable could stand in the place of one: of the same function, of the same object, or another key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from dovetail_kit.mutants.nodes import name_of

MASK: Final = re.compile(r"(^|_)(mask|live|kept|there)$")
TYPE: Final = re.compile(r"\b(bool|int|float|str|Literal|Mapping|dict|tuple)\b")
OUTLINE: Final = ("shape", "dtype", "ndim", "size", "device")
"""Attributes that tell nothing of what is in an array, and are often those of several."""
ALIKE: Final = re.compile(r".*_like|broadcast_to|indicator")
"""Functions that take no more of one of their arguments than its outline."""
NEAREST: Final = 4
"""Variables that are tried in the place of one: of many, most are of another type, which any example notices."""
CONVERSIONS: Final = ("float", "int", "str", "list", "tuple", "asarray", "array", "astype")
Partners = Mapping[ast.AST, tuple[str, ...]]


def partners_of(function: ast.FunctionDef, fields: Mapping[str, str]) -> Partners:
    """Return, for each variable, attribute of `self` and key that is read, what else of its sort is there to be read.

    Of variables the nearest of those count that have a value in an earlier line, but for what would be put into itself.
    Nothing is said of a variable that is only asked whether it is there, or of which only the shape or the type is
    taken, and where one is counted, nothing of a list that is always as long.

    Args:
        function: a function or method, whose inner functions belong to it.
        fields: the names and annotations of what the objects of its class are made of.
    """
    variables = _Variables(function)
    keys = _keys(function)
    found: dict[ast.AST, tuple[str, ...]] = {}
    counted = {id(each) for node in ast.walk(function) if (each := _counted(node))}
    owners = {each: owner for node in ast.walk(function) for owner, each in _put_into(node)}
    plain = {id(each) for node in ast.walk(function) for each in _without_value(node)}
    for node in ast.walk(function):
        match node:
            case ast.Name(ctx=ast.Load()) if id(node) not in plain:
                equal = variables.as_long if id(node) in counted else set()
                others = [each for each in variables.instead_of(node) if {each, node.id} not in equal]
                found[node] = tuple(each for each in others if each != owners.get(node))[:NEAREST]
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()) if name in fields:
                sort = _type(fields[name])
                found[node] = tuple(each for each in fields if each != name and _type(fields[each]) == sort)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                found[node] = tuple(each for each in keys[ast.unparse(value)] if each != key)
    return {node: others for node, others in found.items() if others}


class _Variables:
    """The variables of a function, each with its sort and the line from which on it has a value."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.since: dict[str, int] = {}
        self.sorts: dict[str, str] = {}
        self.converted: set[frozenset[str]] = set()
        self.as_long: set[frozenset[str]] = set()
        for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            if each.arg not in ("self", "cls"):
                setting = _type(ast.unparse(each.annotation)) if each.annotation else ""
                sort = f"setting {setting}" if each in function.args.kwonlyargs else _sort(each.arg, None)
                self._add(each.arg, 0, sort)
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._add(name, node.lineno, _sort(name, value))
                    if source := _converted(value):
                        self.converted.add(frozenset((name, source)))
                    if source := _one_by_one(value):
                        self.as_long.add(frozenset((name, source)))
                case ast.Name(id=name, ctx=ast.Store()):
                    self._add(name, node.lineno, _sort(name, None))

    def _add(self, name: str, line: int, sort: str) -> None:
        self.since[name] = min(line, self.since.get(name, line))
        self.sorts.setdefault(name, sort)

    def instead_of(self, node: ast.Name) -> Iterator[str]:
        """Yield the variables of the same sort that have a value before the line of a node, the latest ones first."""
        for other, line in sorted(self.since.items(), key=lambda each: -each[1]):
            is_same = other in (node.id, "_") or frozenset((other, node.id)) in self.converted
            if (
                node.id in self.sorts
                and not is_same
                and line < node.lineno
                and self.sorts[other] == self.sorts[node.id]
            ):
                yield other


def _sort(name: str, value: ast.expr | None) -> str:
    """Return whether a variable says of each item if it counts, or is anything else."""
    is_mask = MASK.search(name) or isinstance(value, ast.Compare)
    is_mask = is_mask or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not | ast.Invert))
    is_mask = is_mask or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd | ast.BitOr))
    return "mask" if is_mask else "value"


def _type(annotation: str) -> str:
    return " ".join(sorted(set(TYPE.findall(annotation))))


def _converted(value: ast.expr) -> str:
    """Return the name of what a value is only another type of; empty if it is something else."""
    if isinstance(value, ast.Call) and name_of(value.func) in CONVERSIONS:
        names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)} - {"jnp", "np", *CONVERSIONS}
        return names.pop() if len(names) == 1 else ""
    return ""


def _one_by_one(value: ast.expr) -> str:
    """Return the name of what a list has an item for each item of; empty if there is no such thing."""
    match value:
        case ast.ListComp(generators=[ast.comprehension(iter=ast.Name(id=name), ifs=[])]):
            return name
    return ""


def _counted(node: ast.AST) -> ast.Name | None:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as counted]):
            return counted
    return None


def _put_into(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the variables with whose methods something is called, each with what that is.

    What is put into itself, `seen.append(seen)`, has no end, and what prints it may take as long.
    """
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner)), args=args):
            yield from ((owner, each) for each in args)


def _without_value(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node of which nothing but their outline, or whether they are there, is used."""
    match node:
        case ast.Attribute(attr=name, value=value) if name in OUTLINE:
            yield from ast.walk(value)
        case ast.Call(func=function, args=args, keywords=keywords):
            yield function
            if ALIKE.fullmatch(name_of(function)):
                outlines = args if name_of(function).endswith("_like") else args[1:]
                for each in (*outlines, *(keyword.value for keyword in keywords)):
                    yield from ast.walk(each)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield test
        case ast.BoolOp(values=values):
            yield from values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Compare(left=left, comparators=[ast.Constant(value=None)]):
            yield left


def _keys(function: ast.FunctionDef) -> dict[str, list[str]]:
    """Return the names by which something is looked up in each object."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                keys = found.setdefault(ast.unparse(value), [])
                keys += [key] * (key not in keys)
    return found
