"""Source locations for the end of a message, as ` [file:line]`; empty if unknown."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from dovetail.errors import PluginError

if TYPE_CHECKING:
    from dovetail.registry.component import Component

_TRACED = "; it is traced: write jnp.where for `if`, jnp for numpy, and dovetail.STATIC for a number that it must know"
_MACHINERY = tuple(str(Path(module).parent) for module in (__file__, importlib.__file__, pluggy.__file__))
"""Folders whose stack frames are of no use to a plugin's author: they import plugins and call their hooks."""


def place_of(target: Callable[..., Any]) -> str:
    """Return the location where a function or class is defined."""
    target = inspect.unwrap(target)
    code = getattr(target, "__code__", None)
    if code is not None:
        return f" [{code.co_filename}:{code.co_firstlineno}]"
    try:
        return f" [{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}]"
    except (OSError, TypeError):
        return ""


def raised_at(error: BaseException) -> str:
    """Return the innermost line of the plugin itself that led to an error, even if a library that it calls raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" [{error.filename}:{error.lineno}]"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<", *_MACHINERY))]
    if not frames:
        return ""
    own = [frame for frame in frames if _in_one_package(frame.filename, frames[0].filename)]
    return f" [{own[-1].filename}:{own[-1].lineno}]"


def raised_in(target: Callable[..., Any], error: BaseException) -> str:
    """Return the innermost line of a component's own package that led to an error; empty if there is none."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(target)))
    except TypeError:  # a builtin
        return ""
    root = file
    while (root.parent / "__init__.py").exists():
        root = root.parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if root in (Path(frame.filename), *Path(frame.filename).parents)]
    return f" [{own[-1].filename}:{own[-1].lineno}]" if own else ""


def blamed(error: BaseException, components: Iterable[Component]) -> str:
    """Return which of the components raised an error, or nothing.

    It is `KIND.NAME of DISTRIBUTION VERSION (MODULE) raised ERROR [file:line]`, or, if no single component is to be
    told, `DISTRIBUTION VERSION raised ...`. The line is the innermost of the plugin; the component is the innermost
    whose own lines were being executed, or the only one of its file. Components that were never imported are not
    looked at.
    """
    files = [(each, _file_of(each.origin.module)) for each in components]
    frames = traceback.extract_tb(error.__traceback__)
    for position, frame in reversed([*enumerate(frames)]):
        here = [each for each, file in files if file and _in_one_package(frame.filename, file)]
        if here:
            alone = [each for each, file in files if file == frame.filename]
            running = [each for outer in reversed(frames[: position + 1]) for each in here if _is_within(outer, each)]
            named = alone if len(alone) == 1 else running[:1]
            origin = here[0].origin
            label = f"{named[0].label} of {origin}" if named else f"{origin.distribution} {origin.version}"
            return f"{label} raised {first_line(error)} [{frame.filename}:{frame.lineno}]"
    return ""


def _is_within(frame: traceback.FrameSummary, component: Component) -> bool:
    """Whether a frame is at a line of a component's function or class."""
    try:
        target = inspect.unwrap(component.load())
        lines, first = inspect.getsourcelines(target)
        return frame.filename == inspect.getsourcefile(target) and first <= (frame.lineno or 0) < first + len(lines)
    except (OSError, TypeError, PluginError):  # without a source, or itself mistaken, which is not what was met
        return False


def missing_in(path: str) -> str:
    """Return the place in a module that lacks the attribute of `module:attribute`: a line that names it, or the first.

    A single-file plugin names it where it registers it.
    """
    try:
        file = Path(_file_of(path.partition(":")[0]) or "")
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):  # not imported, or without a source
        return ""
    return f" [{file}:{next((n for n, line in enumerate(lines, 1) if path in line), 1)}]"


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message: JAX's messages are long, and begin with the cause."""
    line, is_traced = str(error).strip().partition("\n")[0], re.match("Tracer.*Conversion|Concr", type(error).__name__)
    return f"{type(error).__name__}: {line.rstrip('.') + _TRACED if is_traced else line}"


def _in_one_package(file: str, other: str) -> bool:
    """Whether a file is the other one or, if that is part of a package, in the same folder or below."""
    folder = Path(other).parent
    return file == other or ((folder / "__init__.py").exists() and folder in Path(file).parents)
