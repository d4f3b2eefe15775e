"""From files to a `Config`: every name, parameter and value is checked, and all that is wrong is reported at once."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dovetail.config.macros import expand
from dovetail.config.parameters import resolve_parameters
from dovetail.config.parse import read
from dovetail.config.resolved import Config
from dovetail.config.sections import FORMS, resolve_sections
from dovetail.config.settings import SECTIONS
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
    registry = registry or current()
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
    problems.raise_if_any()
    return Config(
        **{name: cls(**sections.values[name]) for name, cls in SECTIONS.items()},
        choices=choices,
        origins=sections.origins,
        unused=unused,
        registry=registry,
    )
