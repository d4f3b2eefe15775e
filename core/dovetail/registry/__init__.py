"""Names to components: what a component is, the registry, and how plugins are found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from dovetail.registry.component import (
    REQUIRED,
    STATIC,
    Component,
    Interface,
    Origin,
    has_float,
    read_interface,
)
from dovetail.registry.discovery import discover
from dovetail.registry.registry import Kind, Problem, Registry, normal

__all__ = [
    "REQUIRED",
    "STATIC",
    "Component",
    "Interface",
    "Kind",
    "Origin",
    "Problem",
    "Registry",
    "current",
    "discover",
    "get",
    "has_float",
    "names",
    "normal",
    "plugin_manager",
    "read_interface",
    "register",
]


@functools.cache
def _discovered() -> tuple[Registry, pluggy.PluginManager]:
    return discover()


def current() -> Registry:
    """The process's registry, filled from the installed plugins on first use."""
    return _discovered()[0]


def plugin_manager() -> pluggy.PluginManager:
    """The pluggy manager that holds the installed plugins."""
    return _discovered()[1]


def get(kind: str, name: str) -> Component:
    """Return the component registered under a kind and a name.

    >>> get("policy_loss", "gspo").reads
    ('logps', 'old_logps', 'advantages', 'mask')

    Raises:
        UnknownNameError: with the nearest spelling.
    """
    return current().get(kind, name)


def names(kind: str) -> tuple[str, ...]:
    """Return the sorted names of a kind's components."""
    return current().names(kind)


def register(kind: str, name: str, target: str | Callable[..., Any], *, aliases: Sequence[str] = ()) -> Component:
    """Register a component for this process only, from a notebook or a test.

    A package announces its components with the hook `dovetail_components` instead.
    """
    module = target.partition(":")[0] if isinstance(target, str) else target.__module__
    return current().add(kind, name, target, origin=Origin("session", "0", module), aliases=aliases)
