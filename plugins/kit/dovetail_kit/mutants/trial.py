"""Mutation testing of docstring examples: what of a component could be otherwise without any of them showing it.

DeMillo, Lipton and Sayward 1978, "Hints on test data selection". One operator, number or function of the component is
changed at a time, and its examples are run. A change that they do not notice is a slip that they would not have caught.
"""

from __future__ import annotations

import ast
import functools
import inspect
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs
import jax
from packaging.utils import canonicalize_name

from dovetail.errors import ConfigError, listing, nearest
from dovetail.registry import Component, Registry
from dovetail.registry.compatibility import ENGINE, owner_of
from dovetail_kit.conformance.suites.worked import first_failure, run_examples
from dovetail_kit.mutants.known import Definition, Known
from dovetail_kit.mutants.tree import Mutant, children, is_passed_over, mutants_of

PATIENCE: Final = 10
"""How many times as many turns and calls the loops and functions of a changed component may take, and 1,000 more."""
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
MEMORY: Final = 2**30
"""Bytes that a changed component may take before it is stopped: a buffer may double with all that it is shown."""
STATM: Final = Path("/proc/self/statm")
COMPILED: Final = 100
"""After so many changes the programs that JAX compiled for them are forgotten."""
_TURN: Final = "_dovetail_turn"


class Endless(BaseException):
    """There are far more turns or calls than before a change, or they take far more memory; no `except Exception` of a
    component is to catch it.
    """


@attrs.frozen(kw_only=True)
class Verdict:
    """How many changes were made in a file, those that no example noticed, and what is used but was not changed."""

    file: Path
    made: int
    unnoticed: tuple[Mutant, ...]
    unchanged: tuple[str, ...] = ()


def _resident() -> int:
    """Return the bytes of memory that this process has, or had at most where the system does not tell that."""
    if STATM.exists():
        return int(STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@attrs.define
class Turns:
    """Counts the turns of loops, and the calls of functions, and looks at how much memory they have taken."""

    most: float = float("inf")
    taken: int = 0
    begun_with: int = attrs.Factory(_resident)

    def __call__(self) -> None:
        """Count one, and stop what takes too many, or more memory each time."""
        self.taken += 1
        if self.taken > self.most or _resident() > self.begun_with + MEMORY:
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


def examine(component: Component, watch: Callable[[int, int], None] = lambda done, total: None) -> Verdict | None:
    """Change a component, and what it uses of its file, in one place at a time, and run the examples of all of these.

    Code that is imported from elsewhere stays as it is, and so do texts, messages and defaults. `watch` is told how
    many of all changes have been tried. Returns None for a component without examples.

    Raises:
        ConfigError: if it is not defined at the top level of a file, or its examples fail as it is.
    """
    target = inspect.unwrap(component.load())
    module = sys.modules.get(target.__module__)
    file = Path((module and inspect.getsourcefile(module)) or "")
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    tree = ast.parse(source)
    used = _used(tree, target.__name__)
    constants = _constants(tree, used)
    shown = list(_with_examples(target, module, used))
    if module is None or not shown:
        return None
    if not used:
        raise ConfigError("it is not defined at the top level of a file, so that it is not known what to change")
    for each in shown:
        failed, said = run_examples(each)
        if failed:
            whose = "its examples fail" if each is target else f"the examples of '{each.__name__}' fail"
            raise ConfigError(f"{whose} as it is: {first_failure(said)}")
    unchanged = tuple(_unchanged(tree, used, constants))
    for node in used:
        _count_turns(node)
    flags = annotations.compiler_flag if _postpones(tree) else 0
    body = [node for node in tree.body if node in constants or node in used]
    trial = functools.partial(_is_noticed, shown=shown, module=module, body=body, flags=flags)
    before = Turns()
    trial(None, turns=before)
    known = Known.of(used)
    mutants = [mutant for node in body for mutant in mutants_of(node, source.splitlines(), known)]
    most = PATIENCE * before.taken + 1000
    unnoticed = []
    for number, mutant in enumerate(mutants):
        watch(number, len(mutants))
        if number % COMPILED == COMPILED - 1:
            jax.clear_caches()
        if not trial(mutant, turns=Turns(most)):
            unnoticed.append(mutant)
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
    mutant: Mutant | None, *, turns: Turns, shown: list[Any], module: ModuleType, body: list[ast.stmt], flags: int
) -> bool:
    """Define what is changed in a copy of its module, and run the examples with it."""
    names = vars(module) | {_TURN: turns}
    if mutant:
        mutant.make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(ast.Module(body=body, type_ignores=[]), "<mutant>", "exec", flags=flags, dont_inherit=True)
            exec(code, names)
            changed = {node.name: names[node.name] for node in body if isinstance(node, Definition)}
            return any(run_examples(each, changed)[0] for each in shown)
    except (Exception, Endless):
        return True
    finally:
        if mutant:
            mutant.undo()


def _count_turns(definition: Definition) -> None:
    """Have each turn of the loops of a definition counted, because a changed one may never end, and each call.

    An example may itself ask until there is nothing left, `iter(study.ask, None)`, which a changed method never says.
    """
    for node in ast.walk(definition):
        if isinstance(node, ast.While | ast.FunctionDef):
            has_docstring = isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None
            call = ast.Expr(value=ast.Call(func=ast.Name(id=_TURN, ctx=ast.Load()), args=[], keywords=[]))
            node.body.insert(has_docstring, ast.fix_missing_locations(ast.copy_location(call, node.body[0])))


def _unchanged(tree: ast.Module, used: list[Definition], constants: list[ast.stmt]) -> Iterator[str]:
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


def _stored(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _constants(tree: ast.Module, used: list[Definition]) -> list[ast.stmt]:
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


def _is_plain(value: ast.expr) -> bool:
    """Return whether nothing is called to make a value but what makes patterns and containers."""
    return all(
        ast.unparse(each.func) in MAKERS for each in ast.walk(value) if isinstance(each, ast.Call)
    ) and not isinstance(value, ast.Lambda)


def _is_class(node: ast.AST) -> bool:
    """Return whether it is named as classes are, whose methods are called, and not as modules."""
    return isinstance(node, ast.Name) and node.id[:1].isupper() and not node.id.isupper()


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a piece of code in which changes are looked for."""
    if not is_passed_over(node):
        yield node
        for child in children(node):
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
