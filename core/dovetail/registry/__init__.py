"""From names to components: the definition of a component, the registry, and the discovery of plugins."""

from __future__ import annotations

import contextvars
import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import pluggy

from dovetail.errors import DovetailWarning, PluginError
from dovetail.kinds import Kind
from dovetail.registry.component import (
    REQUIRED,
    STATIC,
    Chooses,
    Component,
    Interface,
    Origin,
    has_float,
    read_interface,
)
from dovetail.registry.declares import declares
from dovetail.registry.discovery import discover
from dovetail.registry.one_file import add_to_environment, files
from dovetail.registry.places import place_of
from dovetail.registry.registry import Problem, Registry, Section, normal
from dovetail.registry.renamed import Renamed

__all__ = [
    "REQUIRED",
    "STATIC",
    "Chooses",
    "Component",
    "Interface",
    "Kind",
    "Origin",
    "Problem",
    "Registry",
    "Renamed",
    "Section",
    "add_file",
    "current",
    "declares",
    "discover",
    "get",
    "has_float",
    "names",
    "normal",
    "place_of",
    "plugin_manager",
    "read_interface",
    "register",
]


_asked_for: set[str] = set()
"""Files that this process was asked for by name, which must work."""
_discovers = contextvars.ContextVar("discovers", default=False)
"""Whether this context is loading plugins; one that asks for the registry then would load itself again."""


_DISCOVERY: Final = threading.RLock()
"""Threads that ask at the same moment get one registry: components are compared by identity."""


def _of_process() -> tuple[Registry, pluggy.PluginManager]:
    with _DISCOVERY:
        return _discovered()


@functools.cache
def _discovered() -> tuple[Registry, pluggy.PluginManager]:
    if _discovers.get():
        raise PluginError(
            "plugins are being loaded, so there is no registry yet; register with the hook"
            " dovetail_components(register), and ask for components in functions that are called later"
        )
    begun = _discovers.set(True)
    try:
        registry, manager = discover()
    finally:
        _discovers.reset(begun)
    asked_for = {file.stem for file in files() if str(file) in _asked_for}
    for problem in registry.problems:
        if problem.fatal and problem.distribution in asked_for:
            raise PluginError(f"--plugin {problem.distribution}.py: {problem.reason}")
        cure = f"`dovetail plugin doctor {problem.distribution}` says more"
        warnings.warn(f"{problem}; {cure}", DovetailWarning, stacklevel=2)
    return registry, manager


def add_file(path: str) -> None:
    """Load a single-file plugin, in this process and in those that it starts.

    Raises:
        PluginError: if there is no such file, or its name cannot be imported; the next call that reads the registry
            reports a broken file.
    """
    _asked_for.add(str(add_to_environment(path)))
    _discovered.cache_clear()


def current() -> Registry:
    """Return the registry of this process, filled from the installed plugins on first use."""
    return _of_process()[0]


def plugin_manager() -> pluggy.PluginManager:
    """Return the pluggy manager that holds the installed plugins."""
    return _of_process()[1]


def get(kind: str, name: str) -> Component:
    """Return the component registered under a kind and a name.

    >>> get("policy_loss", "gspo").reads
    ('logps', 'old_logps', 'advantages', 'mask')

    Args:
        kind: the name of a kind.
        name: a name, an alias, or `distribution/name`. An old name works with a warning.

    Raises:
        UnknownNameError: if there is no such kind or component (with the nearest spelling), or the name is ambiguous.
    """
    component = current().get(kind, name)
    notice = current().notice(kind, name)
    if notice:
        warnings.warn(notice, DovetailWarning, stacklevel=2)
    return component


def names(kind: str) -> tuple[str, ...]:
    """Return the sorted names of a kind's components."""
    return current().names(kind)


def register(
    kind: str,
    name: str,
    target: str | Callable[..., Any],
    *,
    aliases: Sequence[str] = (),
    renamed: Sequence[Renamed] = (),
) -> Component:
    """Register a component for this process only, from a notebook or a test.

    A package registers its components with the hook `dovetail_components` instead.

    Args:
        kind: the name of an open kind.
        name: a Python identifier; `-` is read as `_`.
        target: `'module:attribute'`, imported on first use, or the function or class itself.
        aliases: other names for the component.
        renamed: former names of the component or of its hyperparameters.

    Raises:
        PluginError: if the kind is unknown, a name is taken or not an identifier, or the signature breaks the contract.
    """
    module = target.partition(":")[0] if isinstance(target, str) else target.__module__
    return current().add(kind, name, target, origin=Origin("session", "0", module), aliases=aliases, renamed=renamed)
