"""Hashes of the code of a run's components, stored in its folder, so that a run never resumes with other code.

Python files that their parameters name, such as a file of reward functions, count as well, without what they import.

For packages from an index the version would be enough, but the sources of an editable install change without it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

import attrs

from dovetail.config import Config
from dovetail.config.ids import what_is_computed_by
from dovetail.errors import RunError, listing
from dovetail.registry import Component
from dovetail.run.files import read_record, write_whole

CODE: Final = "code.json"
STEP: Final = "the engine's steps"
SHARED: Final = "dovetail.arrays"
"""What components import of the engine's package to compute with."""
DIGITS: Final = 16
_PARSING: Final = threading.Lock()
"""Python 3.11's parser fails with a SystemError if two threads, such as two runs of a population, use it at once."""


def claim_code(folder: Path, config: Config) -> None:
    """Store hashes of the code of a config's components in a run's folder, or compare them with the stored ones.

    Raises:
        RunError: if the code of a component has changed; the message names all that may have, their files, and the
            remedies.
    """
    file = folder / CODE
    if not file.exists():
        write_whole(file, json.dumps(codes(config), indent=2) + "\n")
    elif found := changed_code(folder, config):
        # a hash covers whole files, so that of several components in a changed file any may be the changed one
        raise RunError(
            f"the code of {listing((f'{each.what}{each.place}' for each in found), 4)} has changed since the run in"
            f" '{folder}' began (a component's code is its whole file, and what this imports from its package): choose"
            f" another --folder to begin anew, or remove '{file}' to go on with the code of now"
        )


@attrs.frozen(kw_only=True)
class Changed:
    """A component, or a file that a parameter names, whose code is another one than when a run began.

    Attributes:
        what: its name and origin, for messages.
        place: its file and line, for messages.
        code: the hash of its code of now.
        component: None for a file.
    """

    what: str
    place: str
    code: str
    component: Component | None


def changed_code(folder: Path, config: Config) -> list[Changed]:
    """Return what a config shares with the run in a folder, and has other code than when that run began.

    A folder without hashes, such as that of a run that has not begun, differs in nothing.
    """
    if not (folder / CODE).exists():
        return []
    noted, components = read_record(folder / CODE), _components(config)
    found = []
    for name, code in codes(config).items():
        if noted.get(name, code) != code:
            component = components.get(name)
            what, place = (f"{component.label} of {component.origin}", component.place) if component else (name, "")
            found.append(Changed(what=what, place=place, code=code, component=component))
    return found


def codes(config: Config) -> dict[str, str]:
    """Return a hash of the code of each component of a config, and of each file that one names, by name in messages."""
    files = {f"file {name}": _short(file.read_bytes()) for name, file in files_named_by(config).items()}
    return (
        {name: code_of(component) for name, component in _components(config).items()} | files | {STEP: _of_the_step()}
    )


def files_named_by(config: Config) -> dict[str, Path]:
    """Return the Python files that parameters name, as a file of reward functions, by their names in the config.

    These are the parameters that their components declare as `programs`.
    """
    named = [
        (choice.params[name], choice.used[name])
        for choice in config.choices.values()
        for name in choice.component.declares.get("programs", ())
    ]
    files = {name: python_file(file) for name, file in named if isinstance(name, str)}
    return {name: file for name, file in files.items() if file}


def python_file(name: str) -> Path | None:
    """Return the Python file of that name, which may begin with the home folder `~`; None if there is no such file.

    >>> python_file("https://example.org/rewards.py")
    """
    file = Path(name).expanduser()
    return file if file.suffix == ".py" and file.is_file() else None


def _components(config: Config) -> dict[str, Component]:
    return {f"{each.label} of {each.origin.distribution}": each for each in what_is_computed_by(config)}


def code_of(component: Component) -> str:
    """Return a hash of the module that defines a component, and of the modules of its package that this one imports.

    `dovetail.arrays` counts as well, whose formulas are part of most.

    This includes imports inside functions, but not imports whose names are computed at run time.
    """
    digest = hashlib.sha256()
    for name, file in (files := files_of(component)).items():
        digest.update(f"{name}\0".encode() + file.read_bytes())
    if not files:
        with contextlib.suppress(OSError, TypeError):  # in a notebook, only the source of the function is available
            digest.update(inspect.getsource(component.load()).encode())
    return digest.hexdigest()[:DIGITS]


def files_of(component: Component) -> dict[str, Path]:
    """Return the files whose content is a component's code, by module; none for one that is defined in a notebook."""
    found, waiting = dict[str, Path](), [component.origin.module]
    while waiting:
        name = waiting.pop()
        if name not in found and (file := _file_of(name)):
            found[name] = Path(file)
            waiting += _imports(file, os.stat(file).st_mtime_ns, name)
    return dict(sorted(found.items()))


def _of_the_step() -> str:
    """Return a hash of the engine's own part of what is computed, which no component imports."""
    files = sorted((Path(__file__).parents[1] / "step").glob("*.py"))
    return _short(b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files))


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _file_of(module: str) -> str | None:
    """Return the file of a module; None if the module does not exist or is not written in Python."""
    try:
        spec = _spec_of(module)
    except (Exception, SystemExit):  # it is in a package that cannot be imported here, which may raise anything
        return None
    return spec.origin if spec and spec.origin and spec.origin.endswith(".py") else None


def _spec_of(module: str) -> ModuleSpec | None:
    if module in sys.modules:
        return sys.modules[module].__spec__
    parent = module.rpartition(".")[0]
    if parent and ((spec := _spec_of(parent)) is None or spec.submodule_search_locations is None):
        return None  # the name of a function; `find_spec` would import the module to look for others in it
    return importlib.util.find_spec(module)


@functools.lru_cache(maxsize=4096)
def _imports(file: str, changed: int, module: str) -> tuple[str, ...]:
    """Return the names that a module imports from its own package, or from `SHARED`; some may be functions.

    What Python cannot read imports nothing: a package may have modules for other versions of it.
    """
    try:
        with _PARSING:
            tree = ast.parse(Path(file).read_bytes())
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return ()
    return tuple(dict.fromkeys(_imported(tree, file, module)))


def _imported(tree: ast.Module, file: str, module: str) -> Iterator[str]:
    top = module.partition(".")[0]
    package = module if Path(file).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(base, package) if node.level else base
            below = [f"{base}.{alias.name}" for alias in node.names]
            # of a package only the named modules count, because its __init__ lists the components of others
            names = below if base == top else [base, *below]
        else:
            continue
        yield from (name for name in names if name in (top, SHARED) or name.startswith((f"{top}.", f"{SHARED}.")))
