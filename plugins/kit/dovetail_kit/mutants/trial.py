"""Run the examples of a component with one change in its code after another."""

from __future__ import annotations

import ast
import inspect
import resource
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs
import jax

from dovetail.errors import ConfigError
from dovetail.registry import Component
from dovetail_kit.conformance.suites.worked import first_failure, run_examples
from dovetail_kit.mutants.known import Definition, Known
from dovetail_kit.mutants.scope import constants_of, unchanged, used_by
from dovetail_kit.mutants.tree import Mutant, mutants_of

PATIENCE: Final = 10
"""How many times as many turns and calls the loops and functions of a changed component may take, and 1,000 more."""
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


@attrs.define(kw_only=True)
class Trials:
    """The changes of a component, and what is needed to run its examples with each of them.

    Attributes:
        target: the function or class.
        file: where it is defined.
        mutants: the changes, always in the same order.
        unchanged: what it uses and no change touches, with the reasons.
        module: its module, as it was imported.
        body: the code in which changes are made.
        shown: what has examples.
        flags: what it is compiled with.
        most: how many turns and calls it may take.
        tried: how many changes have been tried.
    """

    target: Any
    file: Path
    mutants: list[Mutant]
    unchanged: tuple[str, ...]
    module: ModuleType
    body: list[ast.stmt]
    shown: list[Any]
    flags: int
    most: float = float("inf")
    tried: int = 0

    @classmethod
    def of(cls, component: Component) -> Trials | None:
        """Find the changes of a component, and of what it uses of its file; None for one without examples.

        Nothing is run yet: `check` and `count` do, where they are needed.

        Raises:
            ConfigError: if it is not defined at the top level of a file.
        """
        target = inspect.unwrap(component.load())
        module = sys.modules.get(target.__module__)
        file = Path((module and inspect.getsourcefile(module)) or "")
        source = _source_of(file) if file.is_file() else ""
        tree = ast.parse(source)
        used = used_by(tree, target.__name__)
        shown = list(_with_examples(target, module, used))
        if module is None or not shown:
            return None
        if not used:
            raise ConfigError("it is not defined at the top level of a file, so that it is not known what to change")
        constants = constants_of(tree, used)
        known, body = Known.of(used), [node for node in tree.body if node in constants or node in used]
        made = cls(
            target=target,
            file=file,
            mutants=[mutant for node in body for mutant in mutants_of(node, source.split("\n"), known)],
            unchanged=tuple(unchanged(tree, used, constants)),
            module=module,
            body=body,
            shown=shown,
            flags=annotations.compiler_flag if _postpones(tree) else 0,
        )
        for node in used:
            _count_turns(node)
        return made

    def check(self) -> None:
        """Run the examples as they are.

        Raises:
            ConfigError: if one fails.
        """
        for each in self.shown:
            failed, said = run_examples(each)
            if failed:
                whose = "its examples fail" if each is self.target else f"the examples of '{each.__name__}' fail"
                raise ConfigError(f"{whose} as it is: {first_failure(said)}")

    def count(self) -> None:
        """Run the examples with the code as it is, to know how many turns and calls a change may take."""
        before = Turns()
        self._runs(before)
        self.most = PATIENCE * before.taken + 1000

    def notices(self, number: int) -> bool:
        """Make a change, run the examples, and undo it; return whether any of them notices."""
        self.tried += 1
        if self.tried % COMPILED == 0:
            jax.clear_caches()
        mutant = self.mutants[number]
        mutant.make()
        try:
            return self._runs(Turns(self.most))
        finally:
            mutant.undo()

    def _runs(self, turns: Turns) -> bool:
        """Define the code as it is now in a copy of its module, and return whether an example fails with it."""
        names = vars(self.module) | {_TURN: turns}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.Module(body=self.body, type_ignores=[])
                exec(compile(tree, "<mutant>", "exec", flags=self.flags, dont_inherit=True), names)
                changed = {node.name: names[node.name] for node in self.body if isinstance(node, Definition)}
                return any(run_examples(each, changed)[0] for each in self.shown)
        except (Exception, Endless):
            return True


def _source_of(file: Path) -> str:
    """Return the text of a Python file, in the encoding that it names, as Python counts its lines."""
    with tokenize.open(file) as opened:
        return opened.read()


def _with_examples(target: Any, module: ModuleType | None, used: list[Definition]) -> Iterator[Any]:
    """Yield the component, and the functions, classes and methods of its file that it uses, if they have examples."""
    there = [inspect.unwrap(value) for node in used if callable(value := getattr(module, node.name, None))]
    found = [target, *(each for each in there if each is not target)]
    methods = [value for each in found if inspect.isclass(each) for value in vars(each).values()]
    for each in [*found, *filter(inspect.isfunction, methods)]:
        if ">>>" in (inspect.getdoc(each) or "") and each.__module__ == target.__module__:
            yield each


def _count_turns(definition: Definition) -> None:
    """Have each turn of the loops of a definition counted, because a changed one may never end, and each call.

    An example may itself ask until there is nothing left, `iter(study.ask, None)`, which a changed method never says.
    """
    for node in ast.walk(definition):
        if isinstance(node, ast.While | ast.FunctionDef):
            has_docstring = isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None
            call = ast.Expr(value=ast.Call(func=ast.Name(id=_TURN, ctx=ast.Load()), args=[], keywords=[]))
            node.body.insert(has_docstring, ast.fix_missing_locations(ast.copy_location(call, node.body[0])))


def _postpones(tree: ast.Module) -> bool:
    """Return whether annotations are not evaluated."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return any(alias.name == "annotations" for node in imports for alias in node.names)
