"""What is changed in a piece of code to find out whether an example notices: one place at a time."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from dovetail_kit.mutants.known import Known, announced
from dovetail_kit.mutants.masks import held_everywhere, masks_inside, masks_of_results
from dovetail_kit.mutants.names import partners_of
from dovetail_kit.mutants.nodes import told
from dovetail_kit.mutants.rules import changes, is_divisor

SHAPING: Final = ("axis", "keepdims", "strict", "dtype", "parents", "exist_ok")
"""Keyword arguments whose change is an error, or makes no difference."""
NAME: Final = re.compile(r"[^\W\d][\w.]*")
LONGEST: Final = 80
"""Characters of an expression that is printed around a change."""


@attrs.frozen(kw_only=True)
class Mutant:
    """A change at a line and column, counted from 1, and the functions to make it in the syntax tree and to undo it.

    `within` is the expression around a change of a number, if that is short. `masked_again` is true where a mask is
    left out, and what comes of it is selected by the same mask afterwards.
    """

    line: int
    column: int
    before: str
    after: str
    within: str = ""
    masked_again: bool = False
    make: Callable[[], None] = attrs.field(repr=False, eq=False)
    undo: Callable[[], None] = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        around = f"  in  {self.within}" if self.within else ""
        return f"{self.line}:{self.column}: {self.before}  as  {self.after}{around}"


def together(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Return mutants, with those of one variable as one that has all its other names."""
    found: dict[tuple[int, int, str, str], Mutant] = {}
    for each in mutants:
        of_names = NAME.fullmatch(each.before) and NAME.fullmatch(each.after)
        key = each.line, each.column, each.before, "" if of_names else each.after
        known = found.setdefault(key, each)
        if known is not each:
            again = known.masked_again and each.masked_again
            found[key] = attrs.evolve(known, after=f"{known.after} or {each.after}", masked_again=again)
    return list(found.values())


def mutants_of(
    node: ast.AST,
    lines: Sequence[str],
    known: Known,
    around: ast.AST | None = None,
    masks: frozenset[str] = frozenset(),
) -> Iterator[Mutant]:
    """Yield the changes of a piece of code, which stands in another one; what comes of it is selected by `masks`."""
    if is_passed_over(node):
        return
    if isinstance(node, ast.expr | ast.stmt):
        for owner, field, new in changes(node, known):
            again = held_everywhere(new) in masks
            yield attrs.evolve(_with(node, owner, field, new, lines=lines, around=around), masked_again=again)
    # around a sign, a keyword or an index stands what says where it is
    outer = around if isinstance(node, ast.UnaryOp | ast.keyword | ast.Slice | ast.Tuple) and around else node
    if isinstance(node, ast.FunctionDef):
        masks = masks_of_results(node)
        if not known.partners:  # an inner function belongs to the one around it
            known = attrs.evolve(known, partners=partners_of(node, known.fields))
    elif isinstance(node, ast.ClassDef):
        known = attrs.evolve(known, fields={name: ast.unparse(hint) for name, hint in announced(node) if hint})
    elif isinstance(node, ast.Return):
        masks = frozenset()  # it is what selects
    inside = dict(masks_inside(node))
    for child in children(node):
        yield from mutants_of(child, lines, known, outer, masks | {inside[child]} if child in inside else masks)


def is_passed_over(node: ast.AST) -> bool:
    """Return whether a piece of code is for messages, or only refuses an input."""
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _is_guard(node)


def _is_guard(node: ast.AST) -> bool:
    """Return whether a piece of code only refuses an input."""
    return isinstance(node, ast.If) and all(isinstance(each, ast.Raise) for each in node.body) and not node.orelse


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node consists of, without annotations, decorators, defaults, docstrings and axes."""
    if isinstance(node, ast.Call) and is_divisor(node):
        yield node.args[1]
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.arguments):
            continue
        if isinstance(node, ast.keyword) and node.arg in SHAPING:
            continue
        parts = value if isinstance(value, list) else [value]
        if isinstance(node, ast.ClassDef):
            parts = [part for part in parts if isinstance(part, ast.FunctionDef)]
        yield from (part for part in parts if isinstance(part, ast.AST))


def _with(
    node: ast.expr | ast.stmt, owner: ast.AST, field: str, new: Any, *, lines: Sequence[str], around: ast.AST | None
) -> Mutant:
    """Return the change that gives a field of a node, or of one in it, another value."""
    old, before = getattr(owner, field), ast.unparse(node)
    setattr(owner, field, new)
    after = told(node)
    setattr(owner, field, old)
    if field == "body":  # one statement of several
        node, before, after = next(
            (one, ast.unparse(one), told(other)) for one, other in zip(old, new, strict=True) if one is not other
        )

    for each in new if isinstance(new, list) else [new]:
        if isinstance(each, ast.expr | ast.stmt) and not hasattr(each, "lineno"):
            ast.fix_missing_locations(ast.copy_location(each, node))
    make, undo = (functools.partial(setattr, owner, field, value) for value in (new, old))
    column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode()) + 1
    is_number = isinstance(node, ast.Constant) and isinstance(around, ast.expr)
    within = ast.unparse(around) if is_number and around else ""
    return Mutant(
        line=node.lineno,
        column=column,
        before=before,
        after=after,
        within=within if len(within) <= LONGEST else "",
        make=make,
        undo=undo,
    )
