"""What could be otherwise about masks: one that holds everywhere, and whether another one selects afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dovetail_kit.mutants.names import MASK
from dovetail_kit.mutants.nodes import joined, name_of, with_other_parts


def without_a_mask(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield a call or a product in which a mask holds everywhere."""
    match node:
        case ast.Call(func=ast.Attribute(attr="where")):
            pass  # its condition is changed as a guard
        case ast.Call(func=function, keywords=keywords):
            yield from with_other_parts(node, _everywhere)
            for keyword in keywords:
                if keyword.arg == "where":
                    yield keyword, "value", joined(keyword.value, ast.BitOr(), True)
            if isinstance(function, ast.Attribute) and (everywhere := _everywhere(function.value)):
                yield function, "value", everywhere
        case ast.BinOp(op=ast.Mult()):
            yield from with_other_parts(node, _everywhere)


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
    return joined(part, ast.BitOr(), True) if MASK.search(name_of(part)) else None
