"""Mutation testing of docstring examples: what of a component could be otherwise without any of them showing it.

DeMillo, Lipton and Sayward 1978, "Hints on test data selection". One operator, number or function of the component is
changed at a time, and its examples are run. A change that they do not notice is a slip that they would not have caught.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs
from packaging.utils import canonicalize_name

from dovetail.errors import ConfigError, listing, nearest
from dovetail.registry import Component, Registry
from dovetail.registry.compatibility import ENGINE, owner_of
from dovetail_kit.conformance.suites.worked import run_examples

OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.USub: ast.UAdd,
}
_PAIRS: Final = (("maximum", "minimum"), ("max", "min"), ("sum", "mean"), ("any", "all"), ("argmax", "argmin"))
FUNCTIONS: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])} | {"std": "var", "var": "std"}
NEGLIGIBLE: Final = 1e-5
"""Up to this size a number only keeps a division from being by zero, and no example will show it."""
SHAPING: Final = ("axis", "keepdims", "strict", "dtype")
"""Keyword arguments whose change is an error, or makes no difference."""
Definition = ast.FunctionDef | ast.ClassDef


@attrs.frozen(kw_only=True)
class Mutant:
    """A change of a line, and the functions to make it in the syntax tree and to undo it."""

    line: int
    before: str
    after: str
    make: Callable[[], None] = attrs.field(repr=False, eq=False)
    undo: Callable[[], None] = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        return f"{self.line}: {self.before}  as  {self.after}"


@attrs.frozen(kw_only=True)
class Verdict:
    """How many changes were made in a file, and those that no example noticed."""

    file: Path
    made: int
    unnoticed: tuple[Mutant, ...]


def chosen(registry: Registry, distribution: str | None = None, only: str | None = None) -> list[Component]:
    """Return the components of a distribution, by default of all but dovetail, or a single one: KIND.NAME.

    Raises:
        ConfigError: if there are none.
        UnknownNameError: for an unknown kind or name, with the nearest spelling.
    """
    owners = {component.origin.distribution for component in registry.components()}
    asked = {
        owner
        for owner in owners
        if distribution and canonicalize_name(owner) == canonicalize_name(owner_of(distribution))
    }
    if distribution and not asked:
        raise ConfigError(
            f"{distribution} registers nothing;{nearest(distribution, owners)} these do: {listing(owners)}"
        )
    if only:
        kind, _, name = only.partition(".")
        return [registry.get(kind, name, prefer=sorted(asked))]
    return [each for each in registry.components() if each.origin.distribution in (asked or owners - {ENGINE})]


def examine(component: Component) -> Verdict | None:
    """Change a component, and the functions of its file that it uses, in one place at a time, and run its examples.

    Code that is imported from elsewhere stays as it is, and so do messages, defaults and loops until a condition holds.
    Returns None for a component without examples.

    Raises:
        ConfigError: if it is not defined at the top level of a file, or its examples fail as it is.
    """
    target = inspect.unwrap(component.load())
    module = sys.modules.get(target.__module__)
    if module is None or ">>>" not in (inspect.getdoc(target) or ""):
        return None
    file = Path(inspect.getsourcefile(module) or "")
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module(body=[], type_ignores=[])
    used = _used(tree, target.__name__)
    if not used:
        raise ConfigError("it is not defined at the top level of a file, so that it is not known what to change")
    if run_examples(target)[0]:
        raise ConfigError("its examples fail as it is; `pytest` says how")
    mutants = [mutant for node in used for mutant in _mutants(node)]
    unnoticed = [mutant for mutant in mutants if not _is_noticed(mutant, target, module, tree, used)]
    return Verdict(file=file, made=len(mutants), unnoticed=tuple(unnoticed))


def _is_noticed(mutant: Mutant, target: Any, module: ModuleType, tree: ast.Module, used: list[Definition]) -> bool:
    """Define the changed functions in a copy of their module, and run the examples with them."""
    names, flags = vars(module).copy(), annotations.compiler_flag if _postpones(tree) else 0
    mutant.make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.Module(body=[*used], type_ignores=[])
            exec(compile(body, "<mutant>", "exec", flags=flags, dont_inherit=True), names)
            failed, _ = run_examples(target, {node.name: names[node.name] for node in used})
    except Exception:
        return True
    finally:
        mutant.undo()
    return failed > 0


def _postpones(tree: ast.Module) -> bool:
    """Return whether annotations are not evaluated."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return any(alias.name == "annotations" for node in imports for alias in node.names)


def _used(tree: ast.Module, name: str) -> list[Definition]:
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


def _mutants(node: ast.AST) -> Iterator[Mutant]:
    """Yield the changes of a piece of code."""
    if isinstance(node, ast.Raise | ast.Assert | ast.While | ast.JoinedStr) or _is_guard(node):
        return
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp | ast.UnaryOp) and type(node.op) in OPERATORS:
        yield _with(node, node, "op", OPERATORS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield _with(node, node, "operand", ast.UnaryOp(op=node.op, operand=node.operand))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
        yield _with(node, node, "ops", [OPERATORS[type(node.ops[0])]()])
    elif isinstance(node, ast.Constant) and (other := _other(node.value)) is not None:
        yield _with(node, node, "value", other)
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in FUNCTIONS:
            yield _with(node, function, "attr", FUNCTIONS[function.attr])
        elif isinstance(function, ast.Name) and function.id in FUNCTIONS:
            yield _with(node, function, "id", FUNCTIONS[function.id])
    for child in _children(node):
        yield from _mutants(child)


def _is_guard(node: ast.AST) -> bool:
    """Return whether a piece of code only refuses an input."""
    return isinstance(node, ast.If) and all(isinstance(each, ast.Raise) for each in node.body) and not node.orelse


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node consists of, without annotations, decorators, defaults, docstrings and axes."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.arguments):
            continue
        if isinstance(node, ast.keyword) and node.arg in SHAPING:
            continue
        parts = value if isinstance(value, list) else [value]
        if isinstance(node, ast.ClassDef):
            parts = [part for part in parts if isinstance(part, ast.FunctionDef)]
        yield from (part for part in parts if isinstance(part, ast.AST))


def _other(value: Any) -> Any:
    """Return another number, or None for what is not to be changed."""
    if isinstance(value, bool):
        return not value
    if not isinstance(value, int | float) or 0 < abs(value) <= NEGLIGIBLE:
        return None
    return value + 1 if isinstance(value, int) or not value else 2 * value


def _with(node: ast.expr | ast.stmt, owner: ast.AST, field: str, new: Any) -> Mutant:
    """Return the change that gives a field of a node, or of one in it, another value."""
    old, before = getattr(owner, field), ast.unparse(node)
    setattr(owner, field, new)
    after = ast.unparse(node)
    setattr(owner, field, old)

    if isinstance(new, ast.expr):
        ast.fix_missing_locations(ast.copy_location(new, node))
    make, undo = (functools.partial(setattr, owner, field, value) for value in (new, old))
    return Mutant(line=node.lineno, before=before, after=after, make=make, undo=undo)
