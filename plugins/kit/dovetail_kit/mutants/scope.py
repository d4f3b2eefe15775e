"""What of a file a component consists of: its definition, those that it uses, and constants that these read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from dovetail_kit.mutants.known import Definition
from dovetail_kit.mutants.tree import children, is_passed_over

MAKERS: Final = (
    "re.compile",
    "re.escape",
    "frozenset",
    "set",
    "dict",
    "tuple",
    "MappingProxyType",
    "types.MappingProxyType",
)
"""What makes constants, which are made anew for each change."""


def used_by(tree: ast.Module, name: str) -> list[Definition]:
    """Return a definition of a module and those that it uses, directly or not, in the order of the file."""
    known = {node.name: node for node in tree.body if isinstance(node, Definition)}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each in known and each not in found:
            found.add(each)
            waiting += [node.id for node in ast.walk(known[each]) if isinstance(node, ast.Name)]
    return [node for each, node in known.items() if each in found]


def constants_of(tree: ast.Module, used: list[Definition]) -> list[ast.stmt]:
    """Return the assignments of a module, of what is read in definitions, to numbers, patterns, tables and the like."""
    found: list[ast.stmt] = []
    code: list[ast.AST] = [*used]
    for node in reversed(tree.body):  # one may be made of earlier ones
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_plain(node.value):
            read = {each.id for one in code for each in ast.walk(one) if isinstance(each, ast.Name)}
            if _stored(node) & read:
                found.append(node)
                code.append(node.value)
    return found


def _stored(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _is_plain(value: ast.expr) -> bool:
    """Return whether nothing is called to make a value but what makes patterns and containers."""
    return all(
        ast.unparse(each.func) in MAKERS for each in ast.walk(value) if isinstance(each, ast.Call)
    ) and not isinstance(value, ast.Lambda)


def unchanged(tree: ast.Module, used: list[Definition], constants: list[ast.stmt]) -> Iterator[str]:
    """Yield what the code of definitions uses, and is not changed, with the reason."""
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    others = {name for node in assigned if node not in constants for name in _stored(node)}
    code = [node for each in used for node in _code(each)]
    calls = [node.func for node in code if isinstance(node, ast.Call)]
    owners = [call.value if isinstance(call, ast.Attribute) and _is_class(call.value) else call for call in calls]
    called = {call.id for call in owners if isinstance(call, ast.Name) and call.id in imported}
    read = {node.id for node in code if isinstance(node, ast.Name) and node.id in others}
    patterns = {ast.unparse(call) for call in calls if ast.unparse(call).startswith("re.")}
    made = {
        f"{each.name} of {name}"
        for each in tree.body
        if isinstance(each, ast.ClassDef) and each not in used
        for node in assigned
        for name in read & {target.id for target in ast.walk(node) if isinstance(target, ast.Name)}
        if any(isinstance(part, ast.Name) and part.id == each.name for part in ast.walk(node))
    }
    for names, reason in ((called, "imported"), (read | made, "made once"), (patterns, "text")):
        if names:
            yield f"{', '.join(sorted(names))} ({reason})"


def _is_class(node: ast.AST) -> bool:
    """Return whether it is named as classes are, whose methods are called, and not as modules."""
    return isinstance(node, ast.Name) and node.id[:1].isupper() and not node.id.isupper()


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a piece of code in which changes are looked for."""
    if not is_passed_over(node):
        yield node
        for child in children(node):
            yield from _code(child)
