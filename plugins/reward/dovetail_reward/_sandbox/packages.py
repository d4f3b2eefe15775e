"""Which files the installed packages consist of that code in the sandbox may import."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from packaging.requirements import Requirement

from dovetail.errors import ConfigError, nearest


@functools.cache
def places(names: tuple[str, ...]) -> Mapping[str, Path]:
    """Return the files and folders of packages and of all that these need, by the name that each has where it lies.

    Args:
        names: as they are imported, such as `numpy`.

    Raises:
        ConfigError: for a package that is not installed in this environment, or whose files lie elsewhere.

    >>> {"numpy"} <= set(places(("numpy",))), places(())
    (True, mappingproxy({}))
    """
    known = importlib.metadata.packages_distributions() if names else {}
    found: dict[str, Path] = {}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"'{name}' is not installed in this environment.{nearest(name, known)} pip can install it"
            )
        mine = {top: path for each in known[name] for top, path in _whole(each).items()}
        if not mine.keys() & {name, f"{name}.py"}:
            raise ConfigError(
                f"'{name}' is installed, but not by copying its files (pip install -e?); install it whole"
            )
        found |= mine
    return MappingProxyType(found)


def _whole(distribution: str) -> dict[str, Path]:
    """Return the places of a distribution and of those that it requires, as far as they are installed."""
    seen, left, found = set[str](), [distribution], dict[str, Path]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found |= _places(installed)
        left += _required(installed.requires or ())
    return found


def _places(installed: importlib.metadata.Distribution) -> dict[str, Path]:
    """Return what a distribution has put beside other packages: its packages, modules and shared libraries."""
    tops = {file.parts[0] for file in installed.files or ()}
    own = {top for top in tops if top not in ("..", "/", "__pycache__") and not top.endswith((".dist-info", ".pth"))}
    return {top: Path(str(installed.locate_file(top))).resolve() for top in sorted(own)}


def _required(lines: Sequence[str]) -> list[str]:
    """Return the names of what these requirements ask for here, without extras.

    >>> _required(["mpmath<1.4", 'pytest>=7; extra == "dev"', 'tzdata; sys_platform == "nowhere"'])
    ['mpmath']
    """
    wanted = map(Requirement, lines)
    return [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
