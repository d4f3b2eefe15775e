"""Plugins that are one file: `--plugin my_loss.py`, or `DOVETAIL_PLUGINS=my_loss.py:other.py`.

Such a file is what the module of a package would be: functions, and hooks that register them. Its name is that of its
distribution, and a hash of its text the version, so that another text is another run.

    import dovetail

    @dovetail.hookimpl
    def dovetail_components(register):
        register("policy_loss", "my_loss", "my_loss:my_loss")

    def my_loss(logps, advantages, mask):
        return -logps * advantages
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from dovetail.errors import PluginError

FILES: Final = "DOVETAIL_PLUGINS"


def files() -> tuple[Path, ...]:
    """Return the files that the environment names."""
    return tuple(Path(name) for name in os.environ.get(FILES, "").split(os.pathsep) if name)


def add_to_environment(path: str) -> Path:
    """Name a file in the environment, which processes hand on to those that they start; return its full path.

    Raises:
        PluginError: if it is not there, or its name cannot be imported.
    """
    file = Path(path).absolute()
    if not file.is_file():
        raise PluginError(f"--plugin {path}: there is no such file")
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise PluginError(f"--plugin {path}: a plugin is a Python file that can be imported, such as my_loss.py")
    if file not in files():
        os.environ[FILES] = os.pathsep.join([*map(str, files()), str(file)])
    return file


def version_of(file: Path) -> str:
    """Return a version that stands for the text of a file, in the form that versions have."""
    return f"0+{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"


def imported(file: Path) -> ModuleType:
    """Import a file under its own name, so that others can import it by that.

    Raises:
        PluginError: if a module of that name is there already.
    """
    there = sys.modules.get(file.stem) or importlib.util.find_spec(file.stem)
    place = getattr(getattr(there, "__spec__", there), "origin", None)
    if there is not None and place != str(file):
        raise PluginError(f"there is a module '{file.stem}' already [{place}]; give {file.name} another name")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "the name of the file ends in .py"
    assert spec.loader is not None, "likewise"
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
    return module
