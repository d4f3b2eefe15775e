"""Check from a plugin's metadata alone, without importing it, that it is compatible with the installed dovetail.

    [project]
    dependencies = ["dovetail-rl>=0.1"]           # any constraint that pip understands

    [project.entry-points."dovetail.api"]
    policy_loss = "v1"                            # the version of this kind's contract that the plugin is written for

pip checks the first when it installs the plugin, but a later upgrade of dovetail alone may violate it. The second is
finer: the contract of one kind may change while all others stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from dovetail.errors import PluginError
from dovetail.extras import DISTRIBUTION
from dovetail.registry.registry import Kind

API_GROUP = "dovetail.api"
ENGINE = "dovetail"
"""The owner of built-in components, in configs and messages; its distribution is called `DISTRIBUTION`."""


def engine_version() -> str:
    """Return the version of the installed dovetail.

    Raises:
        PluginError: if there is no metadata for the distribution, or it still has its former name.
    """
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise PluginError(
            f"the distribution {DISTRIBUTION} is not installed; run in the checkout: pip install --no-deps -e ."
        ) from None


def owner_of(distribution: str) -> str:
    """Return the owner's name in configs and messages: that of the distribution, or `dovetail` for built-in plugins.

    >>> owner_of("acme-rl"), owner_of("dovetail-rl")
    ('acme-rl', 'dovetail')
    """
    return ENGINE if canonicalize_name(distribution) == DISTRIBUTION else distribution


def declared_api(distribution: metadata.Distribution) -> dict[str, int]:
    """Return the version of each kind's contract that a distribution declares it is written for.

    Raises:
        PluginError: on a version that is not of the form `v1`.
    """
    found = {}
    for point in distribution.entry_points.select(group=API_GROUP):
        if not re.fullmatch(r"v[1-9]\d*", point.value):
            raise PluginError(
                f"its metadata has {point.name} = '{point.value}' under \"{API_GROUP}\"; write a version such as 'v1'"
            )
        found[point.name] = int(point.value[1:])
    return found


def requirements(distribution: metadata.Distribution) -> list[Requirement]:
    """Return a distribution's requirements on dovetail itself that apply without extras."""
    found = []
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        wanted = canonicalize_name(requirement.name) == DISTRIBUTION
        if wanted and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.append(requirement)
    return found


def check_requirements(distribution: metadata.Distribution, engine: str) -> None:
    """Refuse a distribution that requires another version of dovetail.

    Raises:
        PluginError: with the constraint and both remedies.
    """
    for requirement in requirements(distribution):
        if not requirement.specifier.contains(engine, prereleases=True):
            raise PluginError(
                f"it requires '{requirement}', and dovetail {engine} is installed; install a version of"
                f" {distribution.name} for it, or that dovetail: pip install '{requirement}'"
            )


def check_api(distribution: str, api: Mapping[str, int], kinds: Iterable[Kind]) -> None:
    """Refuse a distribution that is written for an unsupported version of a kind's contract.

    Kinds that are not open are ignored here: registering a component of such a kind raises an error of its own.

    Raises:
        PluginError: with the plugin's version, the supported ones, and which side to upgrade.
    """
    for kind in kinds:
        version = api.get(kind.name)
        if version is None or version in kind.versions:
            continue
        if version > max(kind.versions):
            cure = f"upgrade {kind.origin.distribution}"
        else:
            cure = f"upgrade {distribution}, or install an older {kind.origin.distribution}"
        raise PluginError(
            f"it is written for v{version} of kind '{kind.name}', and {kind.origin.distribution}"
            f" {kind.origin.version} understands {', '.join(f'v{v}' for v in kind.versions)}; {cure}"
        )
