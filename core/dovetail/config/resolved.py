"""A configuration once it is resolved: typed settings, and a component with all its parameters for every slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.config.schema import MESH, Schema
from dovetail.config.settings import Critic, Eval, Memory, Mesh, Run, Sampling, Sft, Train
from dovetail.config.types import Mismatch, fit
from dovetail.errors import ConfigError, PluginError, nearest
from dovetail.registry import REQUIRED, Component, Registry

if TYPE_CHECKING:
    from dovetail.plan import Plan

DEFAULT = "default"
"""The origin of what nobody set."""


@attrs.frozen(kw_only=True)
class Choice:
    """A chosen component with every hyperparameter, defaults spelled out.

    `origins` tells of each parameter where its value comes from: `default`, `file:line` or `--set ...`.
    """

    component: Component
    params: Mapping[str, Any]
    scope: str = ""
    origins: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    inner: Mapping[str, Choice] = attrs.field(factory=dict)
    """What hyperparameters choose that name a component."""

    def bind(self) -> Callable[..., Any]:
        """Return the function, or the class's instance, with its hyperparameters set."""
        return self.component.bind(**{**self.params, **{name: each.bind() for name, each in self.inner.items()}})


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

    `choices` maps the path of a slot to what it chooses, with an index where the slot holds several:
    `train.policy_loss`, `train.rewards[0]`. Slots that hold None are not in it, except `eval.task`, which then is the
    training task with the parameters that the scope `eval` gives it. A component that the plan adds (a field), or that
    is configured and of a kind without a slot, is under `kind.name`.

    Attributes:
        sections: the settings, by the name of their section.
        choices: the chosen components.
        plan: the work of a step; None if the configuration was read without planning it.
        schema: what a configuration may hold.
        origins: where each setting comes from.
        unused: good bindings that have no effect.
        registry: where names were looked up.
    """

    sections: Mapping[str, Any]
    choices: Mapping[str, Choice]
    plan: Plan | None = attrs.field(default=None, eq=False, repr=False)
    schema: Schema = attrs.field(eq=False, repr=False)
    origins: Mapping[str, str] = attrs.field(eq=False, repr=False)
    unused: tuple[Unused, ...] = attrs.field(eq=False, repr=False)
    registry: Registry = attrs.field(eq=False, repr=False)

    @property
    def train(self) -> Train:
        """The training loop."""
        return self.sections["train"]

    @property
    def critic(self) -> Critic:
        """The critic."""
        return self.sections["critic"]

    @property
    def sft(self) -> Sft:
        """The supervised warm start."""
        return self.sections["sft"]

    @property
    def sampling(self) -> Sampling:
        """How completions are sampled."""
        return self.sections["sampling"]

    @property
    def eval(self) -> Eval:
        """The evaluation."""
        return self.sections["eval"]

    @property
    def run(self) -> Run:
        """How and where the run happens."""
        return self.sections["run"]

    @property
    def mesh(self) -> Mesh:
        """The devices of the policy being trained, and of all that have none of their own."""
        return self.sections["mesh"]

    def mesh_of(self, role: str) -> Mesh:
        """The devices of a role, or of a kind whose components compute with a model."""
        own = self.sections.get(f"{role}/{MESH}")
        given = attrs.asdict(own) if own else {}
        return attrs.evolve(self.mesh, **{name: value for name, value in given.items() if value is not None})

    @property
    def apart(self) -> dict[str, Mesh]:
        """The devices of what has others than the policy, or is cut over them in another way."""
        meshes = {role: self.mesh_of(role) for role in self.schema.places}
        return {role: mesh for role, mesh in meshes.items() if mesh != self.mesh}

    @property
    def memory(self) -> Memory:
        """Where what is needed for a moment only is kept meanwhile."""
        return self.sections["memory"]

    def setting(self, path: str) -> Any:
        """Return a setting's value: `config.setting('train.kl_coef')`.

        Raises:
            KeyError: if there is none of that path.
        """
        section, _, field = path.partition(".")
        if section not in self.sections or not hasattr(self.sections[section], field):
            raise KeyError(f"'{path}' is not a setting.{nearest(path, self.origins)}")
        return getattr(self.sections[section], field)

    def choice(self, path: str) -> Choice:
        """Return what a slot chooses.

        Raises:
            KeyError: if the slot is unknown, or holds None.
        """
        if path not in self.choices:
            raise KeyError(f"'{path}' chooses no component.{nearest(path, self.choices)}")
        return self.choices[path]

    def several(self, path: str) -> tuple[Choice, ...]:
        """Return what a slot chooses, in order: none, one, or several."""
        held = self.setting(path)
        if isinstance(held, tuple):
            return tuple(self.choices[f"{path}[{i}]"] for i in range(len(held)))
        return (self.choices[path],) if path in self.choices else ()

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
