"""Hashes of the code of a run's components, stored in its folder, so that a run never resumes with other code.

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
from pathlib import Path
from typing import Final

from dovetail.config import Config
from dovetail.config.ids import what_is_computed_by
from dovetail.errors import RunError
from dovetail.registry import Component
from dovetail.run.files import read_record, write_whole

CODE: Final = "code.json"
_PARSING: Final = threading.Lock()
"""Python 3.11's parser fails with a SystemError if two threads, such as two runs of a population, use it at once."""


def claim_code(folder: Path, config: Config) -> None:
    """Store hashes of the code of a config's components in a run's folder, or compare them with the stored ones.

    Raises:
        RunError: if the code of a component has changed; the message names the component, its file, and the remedies.
    """
    file = folder / CODE
    components, mine = _components(config), codes(config)
    if not file.exists():
        write_whole(file, json.dumps(mine, indent=2) + "\n")
        return
    noted = read_record(file)
    for name, component in components.items():
        if noted.get(name, mine[name]) != mine[name]:
            raise RunError(
                f"the code of {component.label} of {component.origin} has changed since the run in '{folder}' began"
                f"{component.place}: choose another --folder to begin anew, or remove '{file}' to go on with the code"
                " of now"
            )


def codes(config: Config) -> dict[str, str]:
    """Return a hash of the code of each of a config's components, by the component's name in messages."""
    return {name: code_of(component) for name, component in _components(config).items()}


def _components(config: Config) -> dict[str, Component]:
    return {f"{each.label} of {each.origin.distribution}": each for each in what_is_computed_by(config)}


def code_of(component: Component) -> str:
    """Return a hash of the module that defines a component, and of the modules of its package that this one imports.

    This includes imports inside functions, but not imports whose names are computed at run time.
    """
    digest = hashlib.sha256()
    seen, waiting = set[str](), [component.origin.module]
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        if name in seen or file is None:
            continue
        seen.add(name)
        waiting += _imports(file, os.stat(file).st_mtime_ns, name)
    for name in sorted(seen):
        digest.update(f"{name}\0".encode() + Path(str(_file_of(name))).read_bytes())
    if not seen:
        with contextlib.suppress(OSError, TypeError):  # in a notebook, only the source of the function is available
            digest.update(inspect.getsource(component.load()).encode())
    return digest.hexdigest()[:16]


def _file_of(module: str) -> str | None:
    """Return the file of a module; None if the module does not exist or is not written in Python."""
    try:
        spec = sys.modules[module].__spec__ if module in sys.modules else importlib.util.find_spec(module)
    except (ImportError, ValueError):  # the parent of the name is not a package but a function
        return None
    return spec.origin if spec and spec.origin and spec.origin.endswith(".py") else None


@functools.lru_cache(maxsize=4096)
def _imports(file: str, changed: int, module: str) -> tuple[str, ...]:
    """Return the names that a module imports from its own package; some may be functions."""
    with _PARSING:
        tree = ast.parse(Path(file).read_bytes())
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
        yield from (name for name in names if name == top or name.startswith(f"{top}."))
