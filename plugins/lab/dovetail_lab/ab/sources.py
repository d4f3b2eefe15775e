"""What code an A/B test ran: versions do not tell, as the files of an editable install change under one version."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dovetail.config import Config

ENGINE: Final = "dovetail"
DIGITS: Final = 12
GIT_SECONDS: Final = 10.0


def packages_of(configs: Iterable[Config]) -> list[str]:
    """Return the import packages whose components the configs choose, and the engine."""
    chosen = (choice.component.origin.module for config in configs for choice in config.choices.values())
    return sorted({ENGINE, *(module.partition(".")[0] for module in chosen)})


def hashes(packages: Iterable[str]) -> dict[str, str]:
    """Return, by package, a hash of its Python files; a package that is not there as files has none."""
    found = {package: _folder(package) for package in packages}
    return {package: _hash(folder) for package, folder in found.items() if folder}


def commits(packages: Iterable[str]) -> dict[str, str]:
    """Return, by package, the commit that is checked out where it lies, with `+` if its files differ from that."""
    found = {package: _commit(folder) for package in packages if (folder := _folder(package))}
    return {package: commit for package, commit in found.items() if commit}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the packages whose hashes differ.

    >>> changed({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    ['b']
    """
    return sorted(package for package in before.keys() | now.keys() if before.get(package) != now.get(package))


def _folder(package: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:DIGITS]


def _commit(folder: Path) -> str:
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    tracked = head and _git(folder, "ls-files", "--", ".")  # an install inside somebody's checkout is not of its commit
    return f"{head}{'+' * bool(_git(folder, 'status', '--porcelain', '--', '.'))}" if tracked else ""


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
