"""Claims that need no computation: what a component takes, it looks at."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from dovetail.errors import listing
from dovetail.registry import current
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

INDIRECT = ("getattr(", "asdict(", "astuple(", "__dict__", "vars(", "locals(", "signature(")
"""In the source of a package, that a name may be looked at without being written."""


@check(
    doctor="warning",
    fix="Use it, or take it out of the signature; declare idle=('name',) for one that is kept for old configs.",
)
def looks_at_what_it_takes(subject: Subject) -> None:
    """Every hyperparameter, and every field or column that it chooses to read, is looked at somewhere in its code.

    A setting that nothing looks at can be set, swept and published without effect, and a field costs a forward pass.
    """
    component = subject.component
    target = inspect.unwrap(component.load())
    taken = [name for name in component.params if name not in component.common]
    if inspect.isclass(target):
        text = "\n".join(_sources(target))
        if not any(True for cls in target.__mro__[:-1] for _ in _written(cls)):
            raise Inapplicable("it has no code of its own: others look at its fields")
        if "raise NotImplementedError" in text:
            raise Inapplicable("it is not written yet")
        indirect = any(word in text for word in INDIRECT)
        seen = {name for name in taken if indirect or re.search(rf"\.{re.escape(name)}\b", text)}
    else:
        chosen = current().kinds[component.kind].reads is not None
        taken += [name for name in component.reads if chosen]
        seen = set(_looked_at(target))
    unseen = [name for name in taken if name not in seen and name not in subject.declared.get("idle", ())]
    if unseen:
        raise Failed(f"it takes {listing(map(repr, unseen))}, and no line of its code looks at that")


def _written(cls: type[Any]) -> Iterator[str]:
    """Yield the names of what a class defines besides its fields; attrs itself defines only names with underscores."""
    fields = getattr(cls, "__annotations__", {})
    yield from (name for name in vars(cls) if name == "__call__" or not (name.startswith("__") or name in fields))


def _looked_at(function: Any) -> Iterator[str]:
    """Yield the names that a function loads or deletes, or that functions inside it use."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or {"locals", "vars"} & {*code.co_names}:
        raise Inapplicable("it is not a Python function whose code can be read")
    yield from code.co_cellvars
    for instruction in dis.get_instructions(code):
        if "LOAD_" in instruction.opname or instruction.opname.startswith("DELETE_"):
            yield from instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)


def _sources(target: type[Any]) -> Iterator[str]:
    """Yield the text of the package of a class and of its bases, or of the file if it is in none."""
    for cls in target.__mro__[:-1]:
        package = sys.modules.get(cls.__module__.partition(".")[0])
        file = getattr(package, "__file__", None) or getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None:
            raise Inapplicable(f"there is no source of {cls.__module__}")
        home = Path(file)
        for each in sorted(home.parent.rglob("*.py")) if home.name == "__init__.py" else [home]:
            yield each.read_text(encoding="utf-8", errors="replace")
