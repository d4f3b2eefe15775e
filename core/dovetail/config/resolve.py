"""From files to a `Config`: every name, parameter and value is checked, and all that is wrong is reported at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import attrs

from dovetail.config.macros import expand
from dovetail.config.parameters import resolve_parameters
from dovetail.config.parse import read
from dovetail.config.presets import apply_presets
from dovetail.config.resolved import Choice, Config, Unused
from dovetail.config.sections import FORMS, Sections, resolve_sections
from dovetail.config.settings import EXPERIMENTS, SECTIONS
from dovetail.registry import Registry, current


def load(
    path: str | os.PathLike[str] | None, overrides: Sequence[str] = (), *, registry: Registry | None = None
) -> Config:
    """Read a gin file and overrides into a checked, complete configuration.

    Args:
        path: the gin file; None for the defaults.
        overrides: `key=value` texts, as given to `--set`, that go before what the file says.
        registry: where names are looked up; by default the installed plugins.

    Raises:
        ConfigError: with one line for each thing that is wrong, each with its place.

    >>> config = load(None, ["train.policy_loss=gspo", "policy_loss.gspo.epsilon_low=1e-4"])
    >>> config.choice("train.policy_loss").params
    {'epsilon_low': 0.0001, 'epsilon_high': 0.0004}
    """
    found = _resolve(path, overrides, registry or current())
    return Config(
        **{name: cls(**found.sections.values[name]) for name, cls in SECTIONS.items()},
        choices={path: choice for path, choice in found.choices.items() if not _experiments(path)},
        origins={path: origin for path, origin in found.sections.origins.items() if not _experiments(path)},
        unused=found.unused,
        registry=found.registry,
    )


def load_experiment(
    section: str, path: str | os.PathLike[str] | None, overrides: Sequence[str] = ()
) -> tuple[Any, dict[str, Choice]]:
    """Read the section of a command over many runs, such as `sweep`, from the same file and overrides.

    Returns:
        Its settings, and the components that they choose by the path of the role.

    Raises:
        ConfigError: as `load`.
    """
    found = _resolve(path, overrides, current())
    settings = EXPERIMENTS[section](**found.sections.values[section])
    return settings, {path: choice for path, choice in found.choices.items() if path.startswith(f"{section}.")}


@attrs.frozen(kw_only=True)
class _Found:
    sections: Sections
    choices: dict[str, Choice]
    unused: tuple[Unused, ...]
    registry: Registry


def _resolve(path: str | os.PathLike[str] | None, overrides: Sequence[str], registry: Registry) -> _Found:
    reading = read(path, overrides)
    problems = reading.problems
    if not reading.complete:
        problems.raise_if_any()
    bindings = expand(reading.bindings, problems)
    for binding in bindings:
        if len(binding.path) > 3:
            problems.add(binding.place, f"'{binding.key}' has too many parts; {FORMS}")
    sections = resolve_sections([b for b in bindings if len(b.path) == 2], registry, problems)
    parameters = [b for b in bindings if len(b.path) == 3]
    choices, unused = resolve_parameters(parameters, sections.chosen, registry, problems)
    apply_presets(sections, choices, problems)
    problems.raise_if_any()
    problems.warn_if_any()
    return _Found(sections=sections, choices=choices, unused=unused, registry=registry)


def _experiments(path: str) -> bool:
    """Whether a setting or role belongs to a command over many runs."""
    return path.partition(".")[0] in EXPERIMENTS
