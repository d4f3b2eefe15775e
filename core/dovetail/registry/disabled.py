"""Plugins that an environment variable switches off, by distribution: `DOVETAIL_DISABLE=acme-rl,zeta-rl`."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from packaging.utils import canonicalize_name

from dovetail.errors import PluginError, listing, nearest

DISABLE: Final = "DOVETAIL_DISABLE"


def disabled() -> tuple[str, ...]:
    """Return the names that the environment variable lists."""
    return tuple(name.strip() for name in os.environ.get(DISABLE, "").split(",") if name.strip())


def is_disabled(distribution: str) -> bool:
    """Tell whether a distribution is switched off."""
    return canonicalize_name(distribution) in map(canonicalize_name, disabled())


def check_disabled(third_parties: Collection[str]) -> None:
    """Refuse to switch off a plugin that is not installed: the name may be misspelt, and the plugin would stay on.

    Raises:
        PluginError: with the installed plugins.
    """
    for name in disabled():
        if canonicalize_name(name) not in map(canonicalize_name, third_parties):
            raise PluginError(
                f"{DISABLE} names '{name}', but no third party's plugin of that name is"
                f" installed.{nearest(name, third_parties)} Installed: {listing(third_parties)}"
            )
