"""Names in the text of a module: those that it defines, and those that nothing else in it may have."""

from __future__ import annotations

import ast
import builtins
import doctest
from collections.abc import Iterator


def bound_by(text: str) -> set[str]:
    """Return the names that a module has after its import.

    >>> sorted(bound_by("import a.b, c as d\\nE = 1\\nclass F: ...\\ndef g(): h = 2"))
    ['E', 'F', 'a', 'd', 'g']
    """
    return {name for statement in ast.parse(text).body for name in _bound(statement)}


def needed_by(text: str) -> dict[str, str]:
    """Return the names that a module imports, defines or takes from Python, its examples included: name -> which.

    >>> needed_by("from a import b\\ndef f(c): return len(c)")
    {'len': 'uses', 'b': 'imports', 'f': 'defines'}
    """
    tree = ast.parse(text)
    found: dict[str, str] = {}
    for part in (tree, *_examples(tree)):
        used = (node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        found |= {name: "uses" for name in used if name in vars(builtins)}
        for statement in part.body:
            does = "imports" if isinstance(statement, ast.Import | ast.ImportFrom) else "defines"
            found |= dict.fromkeys(_bound(statement), does)
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.alias):
                yield node.asname or node.name.partition(".")[0]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _examples(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the examples of the docstrings, which see the names of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for example in doctest.DocTestParser().get_examples(ast.get_docstring(node) or ""):
                yield ast.parse(example.source)
