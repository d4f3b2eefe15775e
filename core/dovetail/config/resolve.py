"""From files to a `Config`: every name, parameter and value is checked, and all errors are reported together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import attrs

from dovetail.config.macros import expand
from dovetail.config.parameters import resolve_parameters
from dovetail.config.parse import Binding, read
from dovetail.config.presets import apply_presets
from dovetail.config.resolved import DEFAULT, Choice, Config, Unused
from dovetail.config.schema import MESH, ROLES, Schema, is_taken, schema
from dovetail.config.sections import FORMS, Sections, resolve_sections
from dovetail.errors import ConfigError, DovetailError
from dovetail.registry import Registry, current


def load(
    path: str | os.PathLike[str] | None,
    overrides: Sequence[str] = (),
    *,
    registry: Registry | None = None,
    plan: bool = True,
    trusted: bool = True,
) -> Config:
    """Read a gin file and overrides into a checked, complete configuration.

    Args:
        path: the gin file; None for the defaults.
        overrides: `key=value` strings, as for `--set`, which take precedence over the file.
        registry: where names are looked up; by default that of the installed plugins.
        plan: whether to plan the step too; the field components that the plan adds become part of the configuration.
        trusted: whether the file may name programs to run and servers to call. That of a run folder, which may come
            from a stranger, may not: components are instantiated to be checked, so that such programs would run at
            once.

    Raises:
        ConfigError: with one line for each problem, each with its location.
        PlanError: if a chosen component reads a field that nothing provides.

    >>> config = load(None, ["train.policy_loss=gspo", "policy_loss.gspo.epsilon_low=1e-4"])
    >>> config.choice("train.policy_loss").params
    {'epsilon_low': 0.0001, 'epsilon_high': 0.0004}
    """
    found = _resolve(path, overrides, registry or current(), trusted=trusted)
    of_runs = found.schema.of_runs
    config = Config(
        sections={name: found.built(name) for name in of_runs},
        choices={path: choice for path, choice in found.choices.items() if not _is_experiment(path, found.schema)},
        schema=found.schema,
        origins={k: origin for k, origin in found.sections.origins.items() if not _is_experiment(k, found.schema)},
        unused=found.unused,
        registry=found.registry,
    )
    return _planned(config) if plan else config


def _planned(config: Config) -> Config:
    """Plan the step; the field components that it needs become choices, so that they are dumped and hashed too."""
    from dovetail.plan import plan_step

    plan = plan_step(config)
    fields = {f"field.{name}": config.component("field", name) for name in plan.field_components}
    idle = [choice for path, choice in config.choices.items() if path.startswith("field.") and path not in fields]
    kept = {path: choice for path, choice in config.choices.items() if choice not in idle}
    models = {slot.scope for slot in config.schema.slots.values() if slot.kind == "model"}
    unused = [
        Unused(key=path, place=origin, reason="no forward pass of a step uses its model")
        for path, origin in config.origins.items()
        if (role := path.partition(f"/{MESH}.")[0]) in models - {*plan.roles} and role != path and origin != DEFAULT
    ]
    unused += [
        Unused(key=f"{choice.component.label}.{name}", place=origin, reason="no chosen component reads this field")
        for choice in idle
        for name, origin in choice.origins.items()
        if origin != DEFAULT
    ]
    return attrs.evolve(config, plan=plan, choices=kept | fields, unused=(*config.unused, *unused))


def load_experiment(
    section: str, path: str | os.PathLike[str] | None, overrides: Sequence[str] = ()
) -> tuple[Any, dict[str, Choice]]:
    """Read the section of a command over many runs, such as `sweep`, from a file and overrides.

    Returns:
        The settings of the section, and the components that they choose, by the path of their slot.

    Raises:
        ConfigError: as for `load`.
    """
    found = _resolve(path, overrides, current())
    return found.built(section), {
        path: choice for path, choice in found.choices.items() if path.startswith(f"{section}.")
    }


@attrs.frozen(kw_only=True)
class _Found:
    sections: Sections
    schema: Schema
    choices: dict[str, Choice]
    unused: tuple[Unused, ...]
    registry: Registry

    def built(self, section: str) -> Any:
        """Return the settings of a section as an instance of its class, whose validators check them in combination.

        Raises:
            ConfigError: if a validator refuses them, with where they are set.
        """
        try:
            return self.schema.sections[section](**self.sections.values[section])
        except (ValueError, TypeError, DovetailError) as error:
            keys = (f"{section}.{name}" for name in self.sections.values[section])
            places = dict.fromkeys(place for key in keys if (place := self.sections.origins[key]) != DEFAULT)
            message = error.args[0] if error.args else repr(error)
            raise ConfigError(f"{', '.join(places) or section}: {message}") from error


def _resolve(
    path: str | os.PathLike[str] | None, overrides: Sequence[str], registry: Registry, *, trusted: bool = True
) -> _Found:
    reading = read(path, overrides)
    problems = reading.problems
    if not reading.complete:
        problems.raise_if_any()
    bindings = expand(reading.bindings, problems, schema(registry).sections)
    for binding in bindings:
        if len(binding.path) > 3:
            problems.add(binding.place, f"'{binding.key}' has too many parts; {FORMS}")
    placed = dict.fromkeys(b.scope for b in bindings if b.scope and len(b.path) == 2 and b.path[0] == MESH)
    allowed = schema(registry, _opened_roles(bindings, registry), placed)
    sections = resolve_sections([b for b in bindings if len(b.path) == 2], allowed, registry, problems)
    parameters = [b for b in bindings if len(b.path) == 3]
    choices, unused = resolve_parameters(parameters, sections.chosen, allowed, registry, problems, trusted=trusted)
    apply_presets(sections, allowed, choices, problems)
    problems.warn_if_any()
    problems.raise_if_any()
    return _Found(sections=sections, schema=allowed, choices=choices, unused=unused, registry=registry)


def _opened_roles(bindings: Sequence[Binding], registry: Registry) -> list[str]:
    """Return the model roles that `roles.NAME = ...` opens; each gets a section and a scope of that name."""
    names = [b.path[1] for b in bindings if len(b.path) == 2 and b.path[0] == ROLES and not b.scope]
    # invalid names are skipped here: they are refused later, as unknown settings
    return [name for name in names if name.isidentifier() and not is_taken(name, registry)]


def _is_experiment(path: str, schema: Schema) -> bool:
    """Whether a setting or slot belongs to a command over many runs."""
    return path.partition(".")[0] in schema.experiments
