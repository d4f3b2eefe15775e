"""Who is installed and what they register, without importing what they register."""

from __future__ import annotations

from collections import Counter
from importlib import metadata

import attrs

from dovetail.errors import PluginError
from dovetail.registry import Problem, Registry
from dovetail.registry.compatibility import declared_api
from dovetail.registry.discovery import entry_points, is_disabled


@attrs.frozen(kw_only=True)
class Installed:
    """A distribution with plugins.

    Attributes:
        distribution: its name.
        version: its version.
        counts: how many components of each kind it registers.
        api: the contracts that its metadata says it is written for.
        stamp: what the conformance suite said of this version when it last ran.
        problems: why it is not taken in, or should be mended.
        disabled: switched off by the environment.
    """

    distribution: str
    version: str
    counts: dict[str, int]
    api: dict[str, int]
    stamp: str
    problems: tuple[Problem, ...]
    disabled: bool


def installed(registry: Registry) -> list[Installed]:
    """Return the distributions with plugins, dovetail first, then by name."""
    found = {point.dist.name: point.dist for point in entry_points() if point.dist}
    return [_installed(distribution, registry) for distribution in found.values()]


def _installed(distribution: metadata.Distribution, registry: Registry) -> Installed:
    name = distribution.name
    counts = Counter(c.kind for c in registry.components() if c.origin.distribution == name)
    return Installed(
        distribution=name,
        version=distribution.version,
        counts=dict(sorted(counts.items())),
        api=_api(distribution),
        stamp=_stamp(name),
        problems=tuple(problem for problem in registry.problems if problem.distribution == name),
        disabled=is_disabled(name),
    )


def _api(distribution: metadata.Distribution) -> dict[str, int]:
    try:
        return declared_api(distribution)
    except PluginError:
        return {}


def _stamp(distribution: str) -> str:
    from dovetail_kit.conformance import stamp

    return str(stamp.read(distribution))
