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
)
FUNCTIONS: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])} | {"abs": "positive"}
BUILTINS: Final = {"max": "min", "min": "max", "any": "all", "all": "any", "abs": "float", "sorted": "list"}
NEGLIGIBLE: Final = 1e-5
"""Up to this size a number only keeps a division from being by zero, and no example will show it."""
SHAPING: Final = ("axis", "keepdims", "strict", "dtype", "parents", "exist_ok")
"""Keyword arguments whose change is an error, or makes no difference."""
LONGEST: Final = 80
"""Characters of an expression that is printed around a change."""
PATIENCE: Final = 10
"""How many times as many turns the `while` loops of a changed component may take, and a thousand more."""
Definition = ast.FunctionDef | ast.ClassDef
_TURN: Final = "_dovetail_turn"


class Endless(BaseException):
    """A loop takes far more turns than before the change; no `except Exception` of a component is to catch it."""


@attrs.frozen(kw_only=True)
class Mutant:
    """A change at a line and column, counted from 1, and the functions to make it in the syntax tree and to undo it.

    `within` is the expression around a change of a number, if that is short.
    """

    line: int
    column: int
    before: str
    after: str
    within: str = ""
    make: Callable[[], None] = attrs.field(repr=False, eq=False)
    undo: Callable[[], None] = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        around = f"  in  {self.within}" if self.within else ""
        return f"{self.line}:{self.column}: {self.before}  as  {self.after}{around}"


@attrs.frozen(kw_only=True)
class Verdict:
    """How many changes were made in a file, those that no example noticed, and what is used but was not changed."""

    file: Path
    made: int
    unnoticed: tuple[Mutant, ...]
    unchanged: tuple[str, ...] = ()


@attrs.define
class Turns:
    """Counts the turns of the loops."""

    most: float = float("inf")
    taken: int = 0

    def __call__(self) -> None:
        """Count one, and stop what takes too many."""
        self.taken += 1
        if self.taken > self.most:
            raise Endless


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
    """Change a component, and what it uses of its file, in one place at a time, and run the examples of all of these.

    Code that is imported from elsewhere stays as it is, and so do texts, messages, defaults and the module's constants.
    Returns None for a component without examples.

    Raises:
        ConfigError: if it is not defined at the top level of a file, or its examples fail as it is.
    """
    target = inspect.unwrap(component.load())
    module = sys.modules.get(target.__module__)
    file = Path((module and inspect.getsourcefile(module)) or "")
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    tree = ast.parse(source)
    used = _used(tree, target.__name__)
    shown = list(_with_examples(target, module, used))
    if module is None or not shown:
        return None
    if not used:
        raise ConfigError("it is not defined at the top level of a file, so that it is not known what to change")
    for each in shown:
        if run_examples(each)[0]:
            whose = "its examples fail" if each is target else f"the examples of '{each.__name__}' fail"
            raise ConfigError(
                f"{whose} as it is; `{'pytest' if each is target else f'python -m doctest {file}'}` says how"
            )
    unchanged = tuple(_unchanged(tree, used))
    for node in used:
        _count_turns(node)
    flags = annotations.compiler_flag if _postpones(tree) else 0
    trial = functools.partial(_is_noticed, shown=shown, module=module, used=used, flags=flags)
    before = Turns()
    trial(None, turns=before)
    mutants = [mutant for node in used for mutant in _mutants(node, source.splitlines())]
    most = PATIENCE * before.taken + 1000
    unnoticed = [mutant for mutant in mutants if not trial(mutant, turns=Turns(most))]
    return Verdict(file=file, made=len(mutants), unnoticed=tuple(unnoticed), unchanged=unchanged)


def _with_examples(target: Any, module: ModuleType | None, used: list[Definition]) -> Iterator[Any]:
    """Yield the component, and the functions, classes and methods of its file that it uses, if they have examples."""
    there = [inspect.unwrap(value) for node in used if callable(value := getattr(module, node.name, None))]
    found = [target, *(each for each in there if each is not target)]
    methods = [value for each in found if inspect.isclass(each) for value in vars(each).values()]
    for each in [*found, *filter(inspect.isfunction, methods)]:
        if ">>>" in (inspect.getdoc(each) or "") and each.__module__ == target.__module__:
            yield each


def _is_noticed(
    mutant: Mutant | None, *, turns: Turns, shown: list[Any], module: ModuleType, used: list[Definition], flags: int
) -> bool:
    """Define the changed functions in a copy of their module, and run the examples with them."""
    names = vars(module) | {_TURN: turns}
    if mutant:
        mutant.make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.Module(body=[*used], type_ignores=[])
            exec(compile(body, "<mutant>", "exec", flags=flags, dont_inherit=True), names)
            changed = {node.name: names[node.name] for node in used}
            return any(run_examples(each, changed)[0] for each in shown)
    except (Exception, Endless):
        return True
    finally:
        if mutant:
            mutant.undo()


def _count_turns(definition: Definition) -> None:
    """Have each turn of the loops of a definition counted, because a changed one may never end."""
    for node in ast.walk(definition):
        if isinstance(node, ast.While):
            call = ast.Expr(value=ast.Call(func=ast.Name(id=_TURN, ctx=ast.Load()), args=[], keywords=[]))
            node.body.insert(0, ast.fix_missing_locations(ast.copy_location(call, node.body[0])))


def _unchanged(tree: ast.Module, used: list[Definition]) -> Iterator[str]:
    """Yield what the code of definitions uses, and is not changed, with the reason."""
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    constants = {
        name.id
        for node in assigned
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    code = [node for each in used for node in _code(each)]
    calls = [node.func for node in code if isinstance(node, ast.Call)]
    called = {call.id for call in calls if isinstance(call, ast.Name) and call.id in imported}
    read = {node.id for node in code if isinstance(node, ast.Name) and node.id in constants}
    patterns = {ast.unparse(call) for call in calls if ast.unparse(call).startswith("re.")}
    for names, reason in ((called, "imported"), (read, "not in a function"), (patterns, "text")):
        if names:
            yield f"{', '.join(sorted(names))} ({reason})"


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a piece of code in which changes are looked for."""
    if not _is_passed_over(node):
        yield node
        for child in _children(node):
            yield from _code(child)


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


def _mutants(node: ast.AST, lines: list[str], around: ast.AST | None = None) -> Iterator[Mutant]:
    """Yield the changes of a piece of code, which stands in another one."""
    if _is_passed_over(node):
        return
    if isinstance(node, ast.expr | ast.stmt):
        for owner, field, new in _changes(node):
            yield _with(node, owner, field, new, lines=lines, around=around)
    # around a sign, a keyword or an index stands what says where it is
    outer = around if isinstance(node, ast.UnaryOp | ast.keyword | ast.Slice | ast.Tuple) and around else node
    for child in _children(node):
        yield from _mutants(child, lines, outer)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield what could be otherwise in a node: it or a node of it, the name of a field, and another value of that."""
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() | ast.UnaryOp() if type(node.op) in OPERATORS:
            if not _joins_text(node):
                yield node, "op", OPERATORS[type(node.op)]()
            yield from _without_its_complement(node)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield node, "operand", ast.UnaryOp(op=node.op, operand=node.operand)
        case ast.Compare(ops=[operator]):
            for table in (OPERATORS, BOUNDARIES):
                if type(operator) in table:
                    yield node, "ops", [table[type(operator)]()]
        case ast.Subscript() if not _is_shape(node.value) and (end := _other_end(node.slice)):
            yield node, "slice", end
        case ast.Constant() if (other := _other(node.value)) is not None:
            yield node, "value", other
        case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
            yield node.func, "id", BUILTINS[name]
        case ast.Call(func=ast.Attribute(attr=name)) if name in FUNCTIONS:
            yield node.func, "attr", FUNCTIONS[name]
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, *choices]) if choices:
            yield from _without_its_guard(node, condition, choices)


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


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


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


def _is_passed_over(node: ast.AST) -> bool:
    """Return whether a piece of code is for messages, or only refuses an input."""
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _is_guard(node)


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


def _with(
    node: ast.expr | ast.stmt, owner: ast.AST, field: str, new: Any, *, lines: list[str], around: ast.AST | None
) -> Mutant:
    """Return the change that gives a field of a node, or of one in it, another value."""
    old, before = getattr(owner, field), ast.unparse(node)
    setattr(owner, field, new)
    after = ast.unparse(node)
    setattr(owner, field, old)

    for each in new if isinstance(new, list) else [new]:
        if isinstance(each, ast.expr) and not hasattr(each, "lineno"):
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
