"""Find plugins through the entry-point group `dovetail`, and name the distribution at fault when one is broken."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import pluggy

from dovetail import hookspecs
from dovetail.errors import DovetailError, PluginError, nearest
from dovetail.extras import DISTRIBUTION
from dovetail.kinds import Kind
from dovetail.registry.compatibility import (
    ENGINE,
    check_api,
    check_requirements,
    declared_api,
    engine_version,
    owner_of,
)
from dovetail.registry.component import Origin
from dovetail.registry.disabled import DISABLE, check_disabled, is_disabled
from dovetail.registry.one_file import files, imported, version_of
from dovetail.registry.places import place_of, raised_at
from dovetail.registry.registry import Problem, Registry, Section, TakenError
from dovetail.registry.renamed import Renamed
from dovetail.registry.undisturbed import environment_changes, said_of, undisturbed

GROUP = "dovetail"
SLOW_IMPORT_SECONDS = 0.5
HEAVY = ("flax", "jax", "optax", "tensorflow", "torch", "transformers", "vllm")
"""Libraries that a plugin's `__init__` must not import, because every command would then wait for them."""


@attrs.frozen
class Plugin:
    """An imported plugin module and the distribution that ships it."""

    module: Any
    distribution: str
    version: str
    api: Mapping[str, int] = attrs.field(factory=dict)
    """The version of each kind's contract that its metadata declares."""

    @property
    def origin(self) -> Origin:
        """The origin of the kinds and components that it registers."""
        return Origin(self.distribution, self.version, getattr(self.module, "__name__", type(self.module).__name__))


Take = Callable[[Registry, pluggy.PluginManager, Plugin], None]


def discover(manager: pluggy.PluginManager | None = None) -> tuple[Registry, pluggy.PluginManager]:
    """Load every plugin into a fresh registry.

    A plugin that cannot be loaded is listed in `registry.problems`, and only a run that needs it fails. One that is
    incompatible according to its metadata is not even imported. Distributions in `DOVETAIL_DISABLE` (separated by
    commas) are left out. pluggy's own entry-point loader is not used: it silently skips an entry point whose name is
    taken, and stops at the first failing import without naming the plugin.

    Returns:
        The registry, and the plugin manager through which run observers are called.

    Raises:
        PluginError: if `DOVETAIL_DISABLE` names a plugin that is not installed.
    """
    registry = Registry()
    manager = manager or pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    announced = entry_points()
    check_disabled({_owner(point)[0] for point in announced} - {ENGINE})
    points = [point for point in announced if not is_disabled(_owner(point)[0])]
    # first the plugins that only need kinds which are already open; the others may need kinds that these open
    plugins, waiting = _import_all(points, registry, manager, last=False)
    plugins += _import_all(waiting, registry, manager, last=True)[0]
    plugins += [plugin for file in files() if (plugin := _load_file(file, registry, manager))]
    for plugin in plugins:
        _guarded(take_components, registry, manager, plugin)
    return registry, manager


Points = list[metadata.EntryPoint]


def _import_all(
    points: Points, registry: Registry, manager: pluggy.PluginManager, *, last: bool
) -> tuple[list[Plugin], Points]:
    """Import the compatible plugins and let them open kinds; return them, and those that must wait for a kind."""
    plugins, waiting = [], []
    for point in points:
        if _is_fatal(registry, _owner(point)[0]):
            continue
        try:
            if not (_fits(point, registry) or last):
                waiting.append(point)
                continue
        except PluginError as error:
            registry.problems.append(Problem(*_owner(point), f"not imported: {error}", word="incompatible"))
            continue
        plugin = _load(point, registry)
        if plugin and _guarded(take_kinds, registry, manager, plugin):
            plugins.append(plugin)
    return plugins, waiting


def entry_points() -> list[metadata.EntryPoint]:
    """Return the entry points of the group `dovetail`, the engine's own plugins first.

    Metadata of the engine under its former name may remain in an environment and list the same plugins again; those
    duplicates are dropped.
    """
    found = sorted(metadata.entry_points(group=GROUP), key=_order)
    named = {point.value for point in found if point.dist and point.dist.name == DISTRIBUTION}
    return [point for point in found if not (point.dist and point.dist.name == ENGINE and point.value in named)]


def _order(point: metadata.EntryPoint) -> tuple[bool, str, str]:
    distribution, _ = _owner(point)
    return distribution != ENGINE, distribution, point.name


def _owner(point: metadata.EntryPoint) -> tuple[str, str]:
    return (owner_of(point.dist.name), point.dist.version) if point.dist else ("(unknown)", "0")


def _is_fatal(registry: Registry, distribution: str) -> bool:
    return any(problem.fatal and problem.distribution == distribution for problem in registry.problems)


def _fits(point: metadata.EntryPoint, registry: Registry) -> bool:
    """Check a plugin's metadata; false if that must wait because a kind that it is written for is not open yet.

    Raises:
        PluginError: if it is incompatible.
    """
    if point.dist is None or owner_of(point.dist.name) == ENGINE:
        return True
    check_requirements(point.dist, engine_version())
    api = declared_api(point.dist)
    check_api(point.dist.name, api, registry.kinds.values())
    return api.keys() <= registry.kinds.keys()


def _load(point: metadata.EntryPoint, registry: Registry) -> Plugin | None:
    """Import a plugin and record a problem if that was slow; if it raises, record that and return None."""
    distribution, version = _owner(point)
    there = {name for name in HEAVY if name in sys.modules}
    began = time.process_time()
    try:
        with _watched(registry, distribution, version, point.module):
            plugin = point.load()
    except (Exception, SystemExit) as error:
        reason = f"entry point '{point.name}' = {point.value}: {_say(error)}; mend it, or set {DISABLE}={distribution}"
        registry.problems.append(Problem(distribution, version, reason))
        return None
    took = time.process_time() - began
    heavy = [name for name in HEAVY if name in sys.modules and name not in there]
    if heavy or took > SLOW_IMPORT_SECONDS:
        what = f" imports {', '.join(heavy)} and" if heavy else ""
        file = sys.modules[point.module].__file__  # the entry point may name an object in the module
        reason = (
            f"its entry point '{point.value}'{what} takes {took:.1f} s on every command [{file}]; register"
            " targets as 'module:attribute' and leave heavy imports to the modules that they name"
        )
        registry.problems.append(Problem(distribution, version, reason, fatal=False, word="slow"))
    return Plugin(plugin, distribution, version, declared_api(point.dist) if point.dist else {})


def _load_file(file: Path, registry: Registry, manager: pluggy.PluginManager) -> Plugin | None:
    """Import a single-file plugin; if it raises, record the problem and return None."""
    try:
        version = version_of(file)
        with _watched(registry, file.stem, version, str(file)):
            plugin = Plugin(imported(file), file.stem, version)
        if not any(name.startswith("dovetail_") for name in dir(plugin.module)):
            raise PluginError(
                "it has no hook, so nothing in it is registered; write @dovetail.hookimpl, and below it"
                " def dovetail_components(register): ..."
            )
    except (Exception, SystemExit) as error:
        registry.problems.append(Problem(file.stem, "0", f"{file}: {_say(error)}"))
        return None
    return plugin if _guarded(take_kinds, registry, manager, plugin) else None


@contextlib.contextmanager
def _watched(registry: Registry, distribution: str, version: str, module: str) -> Generator[None]:
    """Undo what a plugin does to the process while it is imported, and record a problem that says what it did.

    Every command imports it, so what it sets would hold for runs that use nothing of it.
    """
    variables = dict(os.environ)
    with undisturbed() as did:
        yield
    if said := said_of(did, environment_changes(variables)):
        registry.problems.append(Problem(distribution, version, f"'{module}': {said}", fatal=False, word="intrusive"))


def _guarded(take: Take, registry: Registry, manager: pluggy.PluginManager, plugin: Plugin) -> bool:
    """Let a plugin register; if that fails, remove everything it has registered. Return whether it succeeded."""
    if _is_fatal(registry, plugin.distribution):
        return False
    word = "incompatible"
    try:
        # again, because a kind may have been opened since the metadata was checked
        check_api(plugin.distribution, plugin.api, registry.kinds.values())
        word = "broken"
        take(registry, manager, plugin)
    except (Exception, SystemExit) as error:
        registry.remove(plugin.distribution)
        for name in [name for name, _ in manager.list_name_plugin() if name.startswith(f"{plugin.distribution}:")]:
            manager.unregister(name=name)
        reason = str(error) if word == "incompatible" else _say(error)
        registry.problems.append(Problem(plugin.distribution, plugin.version, reason, word=word))
        return False
    return True


def take_kinds(registry: Registry, manager: pluggy.PluginManager, plugin: Plugin) -> None:
    """Register a plugin's observers, and the kinds and sections that it opens.

    Raises:
        PluginError: on a misspelt hook, or a name that is taken; the message names the distribution.
    """
    _check_hooks(plugin.module, plugin.distribution)
    manager.register(plugin.module, name=f"{plugin.distribution}:{plugin.origin.module}")

    def register_kind(kind: Kind | str, summary: str = "", **options: Any) -> None:
        record = kind if isinstance(kind, Kind) else Kind(name=kind, summary=summary, **options)
        registry.add_kind(record, plugin.origin)

    def register_section(name: str, target: str | type[Any], *, purpose: Any = "what") -> None:
        registry.add_section(Section(name=name, target=target, purpose=purpose, origin=plugin.origin))

    if hasattr(plugin.module, "dovetail_kinds"):
        plugin.module.dovetail_kinds(register_kind)
    if hasattr(plugin.module, "dovetail_sections"):
        plugin.module.dovetail_sections(register_section)


def take_components(registry: Registry, _: pluggy.PluginManager, plugin: Plugin) -> None:
    """Register a plugin's components, once all kinds are open.

    Raises:
        PluginError: on a broken registration; the message names the distribution.
    """

    def register(
        kind: str,
        name: str,
        target: Any,
        *,
        aliases: Sequence[str] = (),
        renamed: Sequence[Renamed] = (),
    ) -> None:
        module = target.partition(":")[0] if isinstance(target, str) else target.__module__
        origin = attrs.evolve(plugin.origin, module=module)
        try:
            registry.add(kind, name, target, origin=origin, aliases=aliases, renamed=renamed)
        except TakenError as error:  # its other components may not need this one, or may work with the owner's
            caller = traceback.extract_stack(limit=2)[0]
            reason = f"{error}; it is left out [{caller.filename}:{caller.lineno}]"
            registry.problems.append(
                Problem(plugin.distribution, plugin.version, reason, fatal=False, word="incomplete")
            )

    if hasattr(plugin.module, "dovetail_components"):
        plugin.module.dovetail_components(register)


def _check_hooks(plugin: Any, distribution: str) -> None:
    known = [name for name in dir(hookspecs) if name.startswith("dovetail_")]
    for name in dir(plugin):
        if not name.startswith("dovetail_") or not callable(getattr(plugin, name)):
            continue
        if name not in known:
            raise PluginError(
                f"plugin {distribution} implements the unknown hook '{name}'.{nearest(name, known)}"
                f" Hooks: {', '.join(known)}{place_of(getattr(plugin, name))}"
            )
        wanted = tuple(inspect.signature(getattr(hookspecs, name)).parameters)
        for given in inspect.signature(getattr(plugin, name)).parameters:
            if given not in wanted:
                raise PluginError(
                    f"plugin {distribution}: the hook '{name}' has no parameter '{given}'.{nearest(given, wanted)}"
                    f" It is {name}({', '.join(wanted)}){place_of(getattr(plugin, name))}"
                )
        if not hasattr(getattr(plugin, name), f"{GROUP}_impl"):
            raise PluginError(
                f"plugin {distribution} has a function '{name}' that is not marked as a hook, so nobody would call it;"
                f" put @dovetail.hookimpl before it{place_of(getattr(plugin, name))}"
            )


def _say(error: BaseException) -> str:
    """Return an error's message on one line, with the line of the plugin that led to it."""
    said = str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
    said = " ".join(said.split())
    return said if re.search(r"\[.+:\d+\]$", said) else said + raised_at(error)
