"""A configuration once it is resolved: typed settings, and a component with all its parameters for every role."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dovetail.config.settings import ALL_SECTIONS, Critic, Eval, Memory, Mesh, Run, Sampling, Sft, Train
from dovetail.config.types import Mismatch, fit
from dovetail.errors import ConfigError, PluginError, nearest
from dovetail.registry import REQUIRED, Component, Registry

DEFAULT = "default"
"""The origin of what nobody set."""

PLANNED_KINDS = frozenset({"field"})
"""Kinds of which the planner picks components itself: they may be configured without being chosen by a setting."""


@attrs.frozen(kw_only=True)
class Role:
    """A setting that chooses a component, as `train.policy_loss`; `many` if it holds a tuple of names."""

    path: str
    kind: str
    scope: str
    many: bool

    @property
    def section(self) -> str:
        """The part of the path before the dot."""
        return self.path.partition(".")[0]


def _roles() -> dict[str, Role]:
    found = {}
    for section, cls in ALL_SECTIONS.items():
        hints = typing.get_type_hints(cls)
        for field in attrs.fields(cls):
            if "kind" in field.metadata:
                path = f"{section}.{field.name}"
                many = typing.get_origin(hints[field.name]) is tuple
                found[path] = Role(path=path, many=many, **field.metadata)
    return found


ROLES: Mapping[str, Role] = _roles()
SCOPES = tuple(dict.fromkeys(role.scope for role in ROLES.values() if role.scope))


@attrs.frozen(kw_only=True)
class Choice:
    """A chosen component with every hyperparameter, defaults spelled out.

    `origins` tells of each parameter where its value comes from: `default`, `file:line` or `--set ...`.
    """

    component: Component
    params: Mapping[str, Any]
    scope: str = ""
    origins: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    def bind(self) -> Callable[..., Any]:
        """Return the function, or the class's instance, with its hyperparameters set."""
        return self.component.bind(**self.params)


def floats(choice: Choice) -> dict[str, float]:
    """Return the hyperparameters that are traced: floats that the component does not mark static."""
    static = choice.component.static
    return {k: v for k, v in choice.params.items() if isinstance(v, float) and k not in static}


def statics(choice: Choice) -> dict[str, Any]:
    """Return the hyperparameters that are compile-time constants: all that `floats` leaves."""
    traced = floats(choice)
    return {k: v for k, v in choice.params.items() if k not in traced}


def defaults(component: Component) -> dict[str, Any]:
    """Return a component's hyperparameters, as their annotations want them; `REQUIRED` where there is no default.

    Raises:
        PluginError: if a default does not fit its own annotation, or cannot be written in gin.
    """
    found = {}
    for name, value in component.params.items():
        try:
            found[name] = value if value is REQUIRED else fit(value, component.hints[name])
        except Mismatch as error:
            raise PluginError(f"default of {component.label}.{name} of {component.origin}: {error}") from error
    return found


@attrs.frozen(kw_only=True)
class Unused:
    """A good binding that has no effect here, and why."""

    key: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} ({self.place}): {self.reason}"


@attrs.frozen(kw_only=True)
class Config:
    """All that a run is configured with; equal configs have equal settings, components and parameters.

    `choices` maps the path of a role to what it chooses, with an index where the role holds several:
    `train.policy_loss`, `train.rewards[0]`. Roles that hold None are not in it, except `eval.task`, which then is the
    training task with the parameters that the scope `eval` gives it. A configured component that no setting chooses but
    the planner may (kind `field`), or that is of a kind without role, is under `kind.name`.
    """

    train: Train
    critic: Critic
    sft: Sft
    sampling: Sampling
    eval: Eval
    run: Run
    mesh: Mesh
    memory: Memory
    choices: Mapping[str, Choice]
    origins: Mapping[str, str] = attrs.field(eq=False, repr=False)
    unused: tuple[Unused, ...] = attrs.field(eq=False, repr=False)
    registry: Registry = attrs.field(eq=False, repr=False)

    def choice(self, role: str) -> Choice:
        """Return what a role chooses.

        Raises:
            KeyError: if the role is unknown, or holds None.
        """
        if role not in self.choices:
            raise KeyError(f"'{role}' chooses no component.{nearest(role, self.choices)}")
        return self.choices[role]

    def several(self, role: str) -> tuple[Choice, ...]:
        """Return what a role that holds a tuple of names chooses, in order."""
        return tuple(self.choices[f"{role}[{i}]"] for i in range(len(self._names(role))))

    def _names(self, role: str) -> tuple[str, ...]:
        section, _, field = role.partition(".")
        return getattr(getattr(self, section), field)

    @property
    def rewards(self) -> tuple[Choice, ...]:
        """What `train.rewards` chooses."""
        return self.several("train.rewards")

    @property
    def sinks(self) -> tuple[Choice, ...]:
        """What `run.sinks` chooses."""
        return self.several("run.sinks")

    def component(self, kind: str, name: str) -> Choice:
        """Return a component as it is configured without scope, else with its defaults.

        For components that no setting need choose, such as the fields that the planner adds.

        Raises:
            UnknownNameError: if there is none of that name.
            ConfigError: if it has a parameter without a default, and the configuration gives none.
        """
        component = self.registry.get(kind, name)
        for choice in self.choices.values():
            if choice.component is component and not choice.scope:
                return choice
        params = defaults(component)
        missing = [name for name, value in params.items() if value is REQUIRED]
        if missing:
            raise ConfigError(f"{component.label} is needed: {component.label}.{missing[0]} has no default, set it")
        return Choice(component=component, params=params, origins=dict.fromkeys(params, DEFAULT))
