"""Single-file plugins: `--plugin my_loss.py`, or `DOVETAIL_PLUGINS=my_loss.py:other.py`.

Such a file contains what the module of a packaged plugin would: functions, and hooks that register them. The file's
name serves as the name of its distribution and a hash of its text as the version, so that an edited file gives another
config id.

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
SINGLE_FILE: Final = "0+"
"""How the versions of single-file plugins begin."""


def files() -> tuple[Path, ...]:
    """Return the files that the environment variable lists, as full paths."""
    return tuple(Path(name).absolute() for name in os.environ.get(FILES, "").split(os.pathsep) if name)


def add_to_environment(path: str) -> Path:
    """Add a file to the environment variable, which child processes inherit; return its full path.

    Raises:
        PluginError: if the file does not exist, or its name cannot be imported.
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
    """Return a valid version string that depends on the text of a file: `0+` and eight digits of its SHA-256."""
    return f"{SINGLE_FILE}{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"


def imported(file: Path) -> ModuleType:
    """Import a file as a module of its own name, so that `module:attribute` targets can refer to it.

    Raises:
        PluginError: if another module of that name exists.
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
