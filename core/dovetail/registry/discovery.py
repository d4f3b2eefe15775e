"""Find plugins through the entry-point group `dovetail`, naming the distribution at fault when one is broken."""

from __future__ import annotations

import os
import time
from importlib import metadata
from typing import Any

import pluggy
from packaging.utils import canonicalize_name

from dovetail import hookspecs
from dovetail.errors import DovetailError, PluginError, nearest
from dovetail.registry.component import Origin
from dovetail.registry.registry import Problem, Registry

GROUP = "dovetail"
DISABLE = "DOVETAIL_DISABLE"
SLOW_IMPORT_SECONDS = 0.5


def discover(manager: pluggy.PluginManager | None = None) -> tuple[Registry, pluggy.PluginManager]:
    """Load every plugin into a fresh registry.

    A plugin that cannot be loaded is listed in `registry.problems` and fails only a run that needs it. Distributions
    named in `DOVETAIL_DISABLE` (comma separated) are left out. pluggy's own entry-point loader is not used: it
    silently skips
    an entry point whose name is taken, and one bad import stops it without a name.

    Returns:
        The registry, and the plugin manager through which run observers are called.
    """
    registry = Registry()
    manager = manager or pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    disabled = {canonicalize_name(d.strip()) for d in os.environ.get(DISABLE, "").split(",") if d.strip()}
    points = sorted(metadata.entry_points(group=GROUP), key=_order)
    plugins = []
    for point in points:
        distribution, version = _owner(point)
        if canonicalize_name(distribution) in disabled:
            continue
        try:
            plugins.append((_import(point, distribution, registry), distribution, version))
        except Exception as error:
            registry.problems.append(
                Problem(distribution, version, f"entry point '{point.name}' = {point.value}: {_say(error)}")
            )
    for plugin, distribution, version in plugins:
        _guarded(registry, manager, plugin, distribution, version)
    return registry, manager


def _order(point: metadata.EntryPoint) -> tuple[bool, str, str]:
    distribution, _ = _owner(point)
    return distribution != "dovetail", distribution, point.name


def _owner(point: metadata.EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("(unknown)", "0")


def _import(point: metadata.EntryPoint, distribution: str, registry: Registry) -> Any:
    began = time.perf_counter()
    plugin = point.load()
    took = time.perf_counter() - began
    if took > SLOW_IMPORT_SECONDS:
        registry.problems.append(
            Problem(
                distribution,
                "",
                f"warning: importing '{point.value}' took {took:.1f} s on every command; register lazy targets"
                " and import jax only in the modules they name",
            )
        )
    return plugin


def _guarded(registry: Registry, manager: pluggy.PluginManager, plugin: Any, distribution: str, version: str) -> None:
    try:
        take_in(registry, manager, plugin, distribution, version)
    except Exception as error:
        registry.remove(distribution) if distribution != "dovetail" else None
        registry.problems.append(Problem(distribution, version, _say(error)))


def take_in(registry: Registry, manager: pluggy.PluginManager, plugin: Any, distribution: str, version: str) -> None:
    """Register one plugin's kinds, components and observers.

    Raises:
        PluginError: on a misspelt hook or a broken registration; the message names the distribution.
    """
    _check_hooks(plugin, distribution)
    origin = Origin(distribution, version, getattr(plugin, "__name__", type(plugin).__name__))

    def register(kind: str, name: str, target: Any, *, aliases: tuple[str, ...] = ()) -> None:
        module = target.partition(":")[0] if isinstance(target, str) else target.__module__
        registry.add(kind, name, target, origin=Origin(distribution, version, module), aliases=aliases)

    def register_kind(name: str, summary: str) -> None:
        registry.add_kind(name, summary, origin)

    manager.register(plugin, name=f"{distribution}:{origin.module}")
    for hook, argument in (("dovetail_kinds", register_kind), ("dovetail_components", register)):
        implementation = getattr(plugin, hook, None)
        if implementation is not None:
            implementation(argument)


def _check_hooks(plugin: Any, distribution: str) -> None:
    known = [name for name in dir(hookspecs) if name.startswith("dovetail_")]
    for name in dir(plugin):
        if name.startswith("dovetail_") and name not in known and callable(getattr(plugin, name)):
            raise PluginError(
                f"plugin {distribution} implements the unknown hook '{name}'.{nearest(name, known)}"
                f" Hooks: {', '.join(known)}"
            )


def _say(error: Exception) -> str:
    return str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
