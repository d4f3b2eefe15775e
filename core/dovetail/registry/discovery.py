"""Find plugins through the entry-point group `dovetail`, naming the distribution at fault when one is broken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import attrs
import pluggy
from packaging.utils import canonicalize_name

from dovetail import hookspecs
from dovetail.errors import DovetailError, PluginError, nearest
from dovetail.registry.component import Origin
from dovetail.registry.registry import Problem, Registry

GROUP = "dovetail"
DISABLE = "DOVETAIL_DISABLE"
SLOW_IMPORT_SECONDS = 0.5


@attrs.frozen
class Plugin:
    """An imported plugin module and the distribution that ships it."""

    module: Any
    distribution: str
    version: str

    @property
    def origin(self) -> Origin:
        """What its kinds carry as their origin."""
        return Origin(self.distribution, self.version, getattr(self.module, "__name__", type(self.module).__name__))


Take = Callable[[Registry, pluggy.PluginManager, Plugin], None]


def discover(manager: pluggy.PluginManager | None = None) -> tuple[Registry, pluggy.PluginManager]:
    """Load every plugin into a fresh registry.

    A plugin that cannot be loaded is listed in `registry.problems` and fails only a run that needs it. Distributions
    named in `DOVETAIL_DISABLE` (comma separated) are left out. pluggy's own entry-point loader is not used: it
    silently skips an entry point whose name is taken, and one bad import stops it without a name.

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
            plugins.append(Plugin(_import(point, distribution, version, registry), distribution, version))
        except Exception as error:
            registry.problems.append(
                Problem(distribution, version, f"entry point '{point.name}' = {point.value}: {_say(error)}")
            )
    for take in (take_kinds, take_components):
        for plugin in plugins:
            _guarded(take, registry, manager, plugin)
    return registry, manager


def _order(point: metadata.EntryPoint) -> tuple[bool, str, str]:
    distribution, _ = _owner(point)
    return distribution != "dovetail", distribution, point.name


def _owner(point: metadata.EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("(unknown)", "0")


def _import(point: metadata.EntryPoint, distribution: str, version: str, registry: Registry) -> Any:
    began = time.perf_counter()
    plugin = point.load()
    took = time.perf_counter() - began
    if took > SLOW_IMPORT_SECONDS:
        registry.problems.append(
            Problem(
                distribution,
                version,
                f"importing '{point.value}' took {took:.1f} s on every command; register lazy targets"
                " and import jax only in the modules they name",
                fatal=False,
            )
        )
    return plugin


def _guarded(take: Take, registry: Registry, manager: pluggy.PluginManager, plugin: Plugin) -> None:
    if any(problem.fatal and problem.distribution == plugin.distribution for problem in registry.problems):
        return
    try:
        take(registry, manager, plugin)
    except Exception as error:
        registry.remove(plugin.distribution)
        registry.problems.append(Problem(plugin.distribution, plugin.version, _say(error)))


def take_kinds(registry: Registry, manager: pluggy.PluginManager, plugin: Plugin) -> None:
    """Take in one plugin's observers and the kinds it opens.

    Raises:
        PluginError: on a misspelt hook or a kind that exists; the message names the distribution.
    """
    _check_hooks(plugin.module, plugin.distribution)
    manager.register(plugin.module, name=f"{plugin.distribution}:{plugin.origin.module}")

    def register_kind(name: str, summary: str) -> None:
        registry.add_kind(name, summary, plugin.origin)

    if hasattr(plugin.module, "dovetail_kinds"):
        plugin.module.dovetail_kinds(register_kind)


def take_components(registry: Registry, _: pluggy.PluginManager, plugin: Plugin) -> None:
    """Take in one plugin's components, when all kinds are open.

    Raises:
        PluginError: on a broken registration; the message names the distribution.
    """

    def register(kind: str, name: str, target: Any, *, aliases: tuple[str, ...] = ()) -> None:
        module = target.partition(":")[0] if isinstance(target, str) else target.__module__
        registry.add(kind, name, target, origin=attrs.evolve(plugin.origin, module=module), aliases=aliases)

    if hasattr(plugin.module, "dovetail_components"):
        plugin.module.dovetail_components(register)


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
