"""Ids of configurations: equal ids mean equal runs, as far as a configuration can determine a run.

A config id is a prefix of the SHA-256 of

* every setting outside the sections that determine where and how a run happens (`run`, `mesh`, `memory`), and every
  parameter of the components that these settings choose or the plan adds, as `dump` writes them;
* the components as `distribution/name`, so that aliases and qualified names give the same id;
* the versions of their distributions, and of dovetail.

The order of lines, comments, macros, includes, origins and unused bindings do not matter. Values are hashed as written:
a path is part of the id, but the content of the file is not. The code of an editable install is not part of it either,
and its version does not change with it; `dovetail.run.code` compares it when a run is resumed. `FORMAT` changes
whenever this definition does, so that an id never has two meanings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dovetail.config.dump import filled, parameters
from dovetail.config.resolved import Choice, Config
from dovetail.config.types import literal
from dovetail.registry import Component
from dovetail.registry.compatibility import ENGINE, engine_version

FORMAT = "dovetail config 2"

Versions = Callable[[Config], Mapping[str, str]]


def versions(config: Config) -> dict[str, str]:
    """Return the versions of dovetail, and of the distributions whose components or sections are part of the id."""
    origins = [choice.component.origin for choice in _choices(config)]
    origins += [section.origin for section in config.registry.sections.values() if section.purpose == "what"]
    owned = {origin.distribution: origin.version for origin in origins}
    return {ENGINE: engine_version()} | owned


def config_id(config: Config, versions: Versions = versions) -> str:
    """Return the config id: ten hexadecimal digits that identify everything except where and how the run happens."""
    lines = [*_settings(config), *map(str, parameters(_choices(config)))]
    lines += [f"{distribution} {version}" for distribution, version in versions(config).items()]
    return hashlib.sha256("\n".join([FORMAT, *sorted(lines)]).encode()).hexdigest()[:10]


def run_id(config: Config, versions: Versions = versions) -> str:
    """Return the config id and the seed: `4f2a90c1de-s0`."""
    return f"{config_id(config, versions)}-s{config.run.seed}"


def what_is_computed_by(config: Config) -> tuple[Component, ...]:
    """Return the components that are part of the id, each once: all except those of `run`, `mesh` and `memory`."""
    return tuple(dict.fromkeys(choice.component for choice in _choices(config)))


def _choices(config: Config) -> list[Choice]:
    return [choice for path, choice in config.choices.items() if path.partition(".")[0] not in config.schema.where]


def _settings(config: Config) -> Iterator[str]:
    for entry in filled(config):
        if entry.key.partition(".")[0] not in config.schema.where:
            yield f"{entry.key} = {literal(_qualified(config, entry.key, entry.value))}"


def _qualified(config: Config, path: str, value: Any) -> Any:
    """Return a setting's value, with names of components as `distribution/name`."""
    if path not in config.schema.slots or value is None:
        return value
    if config.schema.slots[path].many:
        return tuple(choice.component.qualified_name for choice in config.several(path))
    return config.choice(path).component.qualified_name
