"""List the installed distributions with plugins and the components they register, without importing components."""

from __future__ import annotations

from collections import Counter
from importlib import metadata

import attrs

from dovetail.errors import PluginError
from dovetail.registry import Problem, Registry
from dovetail.registry.compatibility import ENGINE, declared_api, owner_of
from dovetail.registry.disabled import is_disabled
from dovetail.registry.discovery import entry_points


@attrs.frozen(kw_only=True)
class Installed:
    """A distribution with plugins.

    Attributes:
        distribution: its name.
        version: its version.
        counts: how many components of each kind it registers.
        api: version of the contract that its metadata names, by kind.
        stamp: the outcome of the last conformance run, as text.
        problems: why it is not loaded, or what should be fixed.
        disabled: whether `DOVETAIL_DISABLE` names it.
    """

    distribution: str
    version: str
    counts: dict[str, int]
    api: dict[str, int]
    stamp: str
    problems: tuple[Problem, ...]
    disabled: bool


def third_parties() -> list[str]:
    """Return the names of the distributions with plugins that are not Dovetail's own, sorted."""
    return sorted({point.dist.name for point in entry_points() if point.dist and owner_of(point.dist.name) != ENGINE})


def installed(registry: Registry) -> list[Installed]:
    """Return the distributions with plugins: Dovetail first, then the others by name."""
    found = {point.dist.name: point.dist for point in entry_points() if point.dist}
    return [_installed(distribution, registry) for distribution in found.values()]


def _installed(distribution: metadata.Distribution, registry: Registry) -> Installed:
    name = owner_of(distribution.name)
    counts = Counter(c.kind for c in registry.components() if c.origin.distribution == name)
    return Installed(
        distribution=name,
        version=distribution.version,
        counts=dict(sorted(counts.items())),
        api=_api(distribution),
        stamp=_stamp(distribution.name),
        problems=tuple(problem for problem in registry.problems if problem.distribution == name),
        disabled=is_disabled(name),
    )


def _api(distribution: metadata.Distribution) -> dict[str, int]:
    try:
        return declared_api(distribution)
    except PluginError:  # already among the problems
        return {}


def _stamp(distribution: str) -> str:
    from dovetail_kit.conformance import stamp

    return str(stamp.read(distribution))
