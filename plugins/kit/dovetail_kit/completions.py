"""Shell completion of kinds, names, configs and settings. Nothing here imports jax, so that completion is fast."""

from __future__ import annotations

import argparse
import io
import os
from typing import Any


def kinds(prefix: str, **_: Any) -> list[str]:
    """Return the kinds that begin with the prefix."""
    from dovetail.registry import current

    return _matching(prefix, current().kinds)


def component_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the names of components of the kind that the preceding argument names."""
    return _names(parsed_args.kind, prefix)


def configs(prefix: str, **_: Any) -> list[str]:
    """Return the names of shipped configs, and the gin files and folders that begin with the prefix."""
    from dovetail import shipped

    return sorted([*_matching(prefix, shipped.configs()), *_gin_files(prefix)])


def _gin_files(prefix: str) -> list[str]:
    directory, slash, start = prefix.rpartition("/")
    here = directory + slash
    if not os.path.isdir(here or "."):
        return []
    with os.scandir(here or ".") as entries:
        offered = [e for e in entries if e.name.startswith(start) and not e.name.startswith(".")]
    folders = [f"{here}{entry.name}/" for entry in offered if entry.is_dir()]
    return folders + [here + entry.name for entry in offered if entry.name.endswith(".gin")]


def overrides(prefix: str, **_: Any) -> list[str]:
    """Return keys, `section.field=` and `kind.name.parameter=`; after `=`, components that the setting can choose."""
    import attrs

    from dovetail.config.schema import schema
    from dovetail.registry import current

    key, equals, value = prefix.partition("=")
    sections = schema(current(), placed=schema(current()).places).sections
    settings = {f"{section}.{field.name}": field for section, cls in sections.items() for field in attrs.fields(cls)}
    if not equals:
        return _matching(prefix, [*(f"{setting}=" for setting in settings), *_selectors(key)])
    kind = settings[key].metadata.get("kind") if key in settings else None
    return [f"{key}={name}" for name in _names(kind, value)] if kind else []


def _selectors(key: str) -> list[str]:
    """Return the possible continuations of a partial `kind.name.parameter=`."""
    from dovetail.registry import current

    registry = current()
    kind, dot, rest = key.partition(".")
    if not dot or kind not in registry.kinds:
        return [f"{each}." for each in registry.kinds if registry.names(each)]
    name, dot, _ = rest.partition(".")
    if dot and registry.has(kind, name):
        return [f"{kind}.{name}.{parameter}=" for parameter in _parameters(kind, name)]
    return [f"{kind}.{each}." for each in registry.names(kind)]


def _parameters(kind: str, name: str) -> list[str]:
    """Return the parameters of a component. This imports it, so anything that it prints is discarded."""
    import contextlib

    from dovetail.errors import DovetailError
    from dovetail.registry import current

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(DovetailError):
        return list(current().get(kind, name).params)
    return []


def _names(kind: str, prefix: str) -> list[str]:
    """Return the names of a kind's components, with the owner if two distributions use the same name."""
    from dovetail.registry import current

    registry = current()
    if kind not in registry.kinds:
        return []
    components = registry.components(kind)
    bare = [component.name for component in components]
    offered = [c.name if bare.count(c.name) == 1 else c.qualified_name for c in components]
    if "/" in prefix:
        offered = [c.qualified_name for c in components]
    return _matching(prefix, offered)


def _matching(prefix: str, words: Any) -> list[str]:
    return sorted({word for word in words if word.startswith(prefix)})
