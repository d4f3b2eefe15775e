"""What is known of the names in a piece of code: hyperparameters, fields, and variables of the same sort."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from dovetail_kit.mutants.names import Partners

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
