"""What code an A/B test ran: versions do not tell, as the files of an editable install change under one version."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dovetail.config import Config
from dovetail.config.located import where_begun
from dovetail.registry import plugin_manager
from dovetail.run.code import files_named_by, python_file

ENGINE: Final = "dovetail"
DIGITS: Final = 12
GIT_SECONDS: Final = 10.0
CALLED: Final = (
    "dovetail_training",
    "dovetail_devices",
    "dovetail_warm_start",
    "dovetail_channels",
    "dovetail_evaluator",
    "dovetail_run_start",
    "dovetail_step_begin",
    "dovetail_step_end",
    "dovetail_evaluation",
    "dovetail_checkpoint",
    "dovetail_run_end",
)
"""The hooks that a run calls."""
ONLY_WARNS: Final = ("dovetail_kit",)
"""What has hooks that runs call, but never changes a run."""


def in_use(configs: Iterable[Config]) -> list[str]:
    """Return what runs of the configs execute: names of import packages, single modules and files.

    These are the engine, the plugins whose components are chosen, the plugins with a hook that runs call, and the
    Python files that parameters name.
    """
    configs = list(configs)
    modules = [choice.component.origin.module for config in configs for choice in config.choices.values()]
    modules += [module for module in _hooked() if module.partition(".")[0] not in ONLY_WARNS]
    files = {name for config in configs for name in files_named_by(config)}
    return [*sorted({ENGINE, *(module.partition(".")[0] for module in modules)}), *sorted(files)]


def hashes(names: Iterable[str]) -> dict[str, str]:
    """Return, by name, a hash of the Python files; a package that is not there as files has none."""
    found = {name: _place(name) for name in names}
    return {name: _hash(place) for name, place in found.items() if place}


def commits(names: Iterable[str]) -> dict[str, str]:
    """Return, by name, the commit that is checked out where it lies, with `+` if its files differ from that."""
    found = {name: _commit(place) for name in names if (place := _place(name))}
    return {name: commit for name, commit in found.items() if commit}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names whose hashes differ.

    >>> changed({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    ['b']
    """
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _hooked() -> list[str]:
    """Return the modules of the plugins that implement a hook of `CALLED`."""
    manager = plugin_manager()
    plugins = [each.plugin for hook in CALLED for each in getattr(manager.hook, hook).get_hookimpls()]
    return [getattr(plugin, "__name__", type(plugin).__module__) for plugin in plugins]


def _place(name: str) -> Path | None:
    """Return the folder of a package, or the file of a single module; a name that ends in `.py` is a file's."""
    if name.endswith(".py"):
        return python_file(where_begun(name))
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return Path(folders[0]) if folders else python_file(spec.origin or "")


def _hash(place: Path) -> str:
    folder, files = (place, sorted(place.rglob("*.py"))) if place.is_dir() else (place.parent, [place])
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:DIGITS]


def _commit(place: Path) -> str:
    folder, what = (place, ".") if place.is_dir() else (place.parent, place.name)
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    tracked = head and _git(
        folder, "ls-files", "--", what
    )  # an install inside somebody's checkout is not of its commit
    return f"{head}{'+' * bool(_git(folder, 'status', '--porcelain', '--', what))}" if tracked else ""


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
