"""Configs that ship in packages: dovetail's own are named `quickstart`, those of plugins `acme-rl/recipe`.

A plugin registers a folder of configs with the hook `dovetail_configs`.
"""

from __future__ import annotations

import functools
import inspect
import os
from pathlib import Path

import attrs
import pluggy
from packaging.utils import canonicalize_name

from dovetail.errors import ConfigError, PluginError, closest, listing, nearest
from dovetail.registry import plugin_manager
from dovetail.registry.calls import Asked, ask_all
from dovetail.registry.compatibility import ENGINE
from dovetail.registry.disabled import DISABLE, is_disabled

DEFAULT = "quickstart"
ENDING = ".gin"

_PACKAGE = Path(__file__).parent


def folder() -> Path:
    """Return the folder of dovetail's own configs: inside an installed package, or `configs/gin` of a checkout."""
    installed = _PACKAGE / "configs"
    return installed if installed.exists() else _PACKAGE.parents[1] / "configs" / "gin"


def configs() -> dict[str, Path]:
    """Return the files of all shipped configs, by the name used on the command line."""
    found = {file.stem: file for file in sorted(folder().glob(f"*{ENDING}"))}
    for distribution, places in _of_plugins(plugin_manager()).items():
        for place in places:
            found |= {f"{distribution}/{name}": file for name, file in _named(place).items()}
    return found


def find(config: str | None) -> Path:
    """Return the file of a config given on the command line: a path, or the name of a shipped config.

    None means the quickstart.

    Raises:
        ConfigError: if there is no such file or config, with the shipped names and the nearest of them.
    """
    config = DEFAULT if config is None else config
    path = Path(config)
    if "\0" in config or not config:
        raise ConfigError(f"{config!r} is not the name of a config; give a gin file or the name of a shipped config")
    if path.is_file():
        return path
    shipped = configs()
    named = shipped.get(_canonical(config))
    if named is not None:
        return named
    if os.path.lexists(path):
        what = "a folder" if path.is_dir() else "a link to nothing" if path.is_symlink() else "not a file"
        said = f"'{config}' is {what}; a config is a gin file, or the name of a shipped config"
        if (path / "run.json").is_file():
            said += f". It is a run: its config is {path / 'config.gin'}; eval, generate and play take --run {config}"
        raise ConfigError(said)
    owner = config.rpartition("/")[0]
    beside = {file.stem: str(file) for file in sorted(path.parent.glob(f"*{ENDING}"))}
    near = closest(path.stem, beside)  # without the ending, which would make all of them similar
    meant = f" Did you mean {beside[near]!r}?" if near else ""
    meant = meant or nearest(config.removesuffix(ENDING), shipped) or nearest(path.stem, shipped)
    meant = f" {DISABLE} switches off {owner}." if owner and is_disabled(owner) else meant
    raise ConfigError(f"there is no config file '{config}'.{meant} Shipped configs, by name: {listing(shipped)}")


def included(name: str, file: Path) -> Path:
    """Return the file that `include 'name'` refers to in a file.

    The first of these that exists: a file relative to the including one; if that one ships in a package, a file of the
    same name in the package's folder; a shipped config, such as `'grpo.gin'` or `'acme-rl/base.gin'`. If none exists,
    the path where the file was expected.
    """
    beside = Path(os.path.normpath(file.parent / name))
    if beside.exists():
        return beside
    plugins = _of_plugins(plugin_manager())
    there = [place / name for place in _folders().get(owner_of(file), ()) if (place / name).is_file()]
    if there:
        return there[0]
    shipped = configs().get(_canonical(name.removesuffix(ENDING))) if name.endswith(ENDING) else None
    if shipped is not None:
        return shipped
    owner, _, rest = _canonical(name).partition("/")
    return plugins[owner][0] / rest if owner in plugins else beside


def owner_of(file: Path) -> str:
    """Return the distribution that ships a config file; empty for the user's own file."""
    for owner, places in _folders().items():
        if any(file.resolve().is_relative_to(place.resolve()) for place in places):
            return owner
    return ""


def _folders() -> dict[str, tuple[Path, ...]]:
    """Return the folders of configs by distribution, including dovetail's own."""
    return {ENGINE: (folder(),)} | _of_plugins(plugin_manager())


def _canonical(name: str) -> str:
    """Return a name with its owner in pip's canonical spelling, and without one for dovetail's own configs."""
    owner, slash, rest = name.partition("/")
    if not slash:
        return name
    owner = canonicalize_name(owner)
    return rest if owner == ENGINE else f"{owner}/{rest}"


@attrs.define
class _Register:
    """The argument of the hook `dovetail_configs`."""

    plugin: Asked
    folders: list[Path] = attrs.field(factory=list)

    def __call__(self, folder: str | Path) -> None:
        """Register a folder of configs, relative to the plugin's module.

        Raises:
            PluginError: if it contains no config, or one whose name the plugin has already registered.
        """
        module = self.plugin.module
        place = Path(inspect.getfile(module if inspect.ismodule(module) else type(module))).parent / folder
        names = _named(place)
        if not names:
            raise PluginError(f"the folder '{place}' holds no {ENDING} file; a wheel must ship its configs")
        twice = [name for other in self.folders for name in _named(other) if name in names]
        if twice:
            raise PluginError(
                f"the config '{twice[0]}' is in the folder '{place}' and in one that is registered before"
            )
        self.folders.append(place)


def _named(place: Path) -> dict[str, Path]:
    """Return the configs in a folder and its subfolders, by their name within the package."""
    files = sorted(place.rglob(f"*{ENDING}"))
    return {file.relative_to(place).with_suffix("").as_posix(): file for file in files}


@functools.cache
def _of_plugins(manager: pluggy.PluginManager) -> dict[str, tuple[Path, ...]]:
    """Return the folders of configs that plugins register, by distribution."""
    found: dict[str, tuple[Path, ...]] = {}
    for plugin, register in ask_all(manager, "dovetail_configs", _Register):
        owner = canonicalize_name(plugin.distribution)
        found[owner] = (*found.get(owner, ()), *register.folders)
    return {owner: folders for owner, folders in found.items() if folders}
