"""What a kind asks of its components, as text: a signature, or the methods of its protocol with their docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import attrs

from dovetail.kinds import Kind
from dovetail.registry.contract import methods_of

HYPERPARAMETERS: Final = "its keyword-only ones are hyperparameters"
METRICS: Final = {
    "fields": "metrics may follow its value, `value, {'name': array}`: for each token, for each completion, or a single"
    " number",
    "columns": "metrics may follow its list, `numbers, {'name': [...]}`: one for each completion, NaN where there is"
    " none",
}
CALLED: Final = "and keyword-only parameters are hyperparameters"
READS: Final = {
    "fields": f"a function: its positional parameters name fields of the batch (docs/glossary.md), {HYPERPARAMETERS}",
    "columns": "a function: its positional parameters name `completions`, columns of the task, or `prompts`,"
    f" `group_ids`, `tokens` and `logps`; {HYPERPARAMETERS}",
}
PUBLIC: Final = "dovetail.protocols"
"""Where protocols of the engine are imported from."""


def contract(kind: Kind) -> list[str]:
    """Return the lines that say what a component of a kind must be; none if its summary says all there is to say."""
    made = kind.load_protocol()
    lines = [READS[kind.reads], METRICS[kind.reads]] if kind.reads else []
    if kind.reads == "fields" and len(kind.writes) > 1:
        lines += [
            f"of several values, {' and '.join(kind.writes)}, they follow the last: `one, other, {{'name': array}}`"
        ]
    if made is None:
        return lines
    for_whom = ", of a class that reads 'state'" if kind.reads == "fields" else ""
    home = f"{_home(made)}.{made.__name__}"
    is_called = kind.scaffold == "function" and kind.reads is None
    lines += [f"a function that is called as {home} is, {CALLED}:" if is_called else f"protocol {home}{for_whom}:"]
    lines += [""]
    return [*lines, *_indented(_of_class(made)), *_of_others(made)]


def _home(made: type[Any]) -> str:
    return PUBLIC if getattr(importlib.import_module(PUBLIC), made.__name__, None) is made else made.__module__


def _of_class(made: type[Any]) -> Iterator[str]:
    """Yield the docstring of a protocol, and its methods and properties with theirs."""
    yield from _text(made)
    for name, method in methods_of(made).items():
        yield ""
        yield f"{name}{_signature(method)}"
        yield from _indented(_text(method))


def _of_others(made: type[Any]) -> Iterator[str]:
    """Yield the classes of the same module that a protocol and its methods name, such as what `open` returns."""
    seen, waiting = [made], [made]
    while waiting:
        for name in _names(waiting.pop(0)):
            other: Any = vars(sys.modules[made.__module__]).get(name)
            own = inspect.isclass(other) and other.__module__ == made.__module__ and other not in seen
            if own and (attrs.has(other) or hasattr(other, "_fields") or getattr(other, "_is_protocol", False)):
                seen.append(other)
                waiting.append(other)
                yield from ("", f"{_home(other)}.{name}:", "", *_indented(_of_class(other)))


def _names(made: type[Any]) -> list[str]:
    """Return the words of the annotations of a class and its methods, in order, and those in their docstrings' code."""
    methods = methods_of(made).values()
    written = [*map(_signature, methods), *map(str, vars(made).get("__annotations__", {}).values())]
    told = " ".join(line for each in (made, *methods) for line in _text(each))
    return re.findall(r"\w+", " ".join([*written, *re.findall(r"`(\w+)`", told)]))


class _Written(str):
    """An annotation as it is written, without the quotes of a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(method: Any) -> str:
    """Return the signature of a method without `self`, or the type of a property after a colon."""
    signature = inspect.signature(getattr(method, "fget", method))
    returned = _written(signature.return_annotation)
    if isinstance(method, property):
        return f": {returned!r}"
    own = [p.replace(annotation=_written(p.annotation)) for p in list(signature.parameters.values())[1:]]
    return str(signature.replace(parameters=own, return_annotation=returned))


def _written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _text(documented: Any) -> list[str]:
    return (inspect.getdoc(documented) or "").splitlines()


def _indented(lines: Any) -> Iterator[str]:
    yield from (textwrap.indent(line, "    ") for line in lines)
