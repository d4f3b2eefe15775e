"""A resolved configuration: typed settings, and for every slot a component with all its parameters."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.config.located import placed
from dovetail.config.schema import MESH, Schema
from dovetail.config.settings import Critic, Eval, Memory, Mesh, Run, Sampling, Sft, Train
from dovetail.config.types import Mismatch, fit
from dovetail.errors import ConfigError, PluginError, nearest
from dovetail.registry import REQUIRED, Component, Registry

if TYPE_CHECKING:
    from dovetail.plan import Plan

DEFAULT = "default"
"""The origin of a value that is not set anywhere."""


@attrs.frozen(kw_only=True)
class Choice:
    """A chosen component with the values of all its hyperparameters, including defaults.

    `origins` gives the origin of each parameter's value: `default`, `file:line` or `--set ...`.
    """

    component: Component
    params: Mapping[str, Any]
    scope: str = ""
    origins: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    inner: Mapping[str, Choice] = attrs.field(factory=dict)
    """The choices made by hyperparameters that name a component, by the name of the hyperparameter."""
    found: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    """The folders of relative paths in the hyperparameters, if that is not the working one; see `config.located`."""

    @property
    def used(self) -> dict[str, Any]:
        """The hyperparameters as the component gets them, with full paths of the files that are in other folders."""
        names = self.component.declares.get("files", ()) if self.found else ()
        return {**self.params, **{name: placed(self.params[name], self.found) for name in names}}

    def bind(self) -> Any:
        """Return the function, or an instance of the class, with its hyperparameters set."""
        return self.component.bind(**{**self.used, **{name: each.bind() for name, each in self.inner.items()}})

    @property
    def declares(self) -> Mapping[str, Any]:
        """The component's claims with these hyperparameters: an instance's `claims` replace those of its class."""
        declared = self.component.declares
        if not hasattr(self.component.load(), "claims"):  # building a component may cost, or read files
            return declared
        return {**declared, **self.bind().claims}

    @property
    def given(self) -> str:
        """The hyperparameters that are set somewhere, for messages; empty if there are none."""
        names = [name for name, place in self.origins.items() if place != DEFAULT]
        mine = [f"{self.component.label}.{name} = {self.params[name]!r}" for name in names]
        return ", ".join([*mine, *(each.given for each in self.inner.values() if each.given)])


def floats(choice: Choice) -> dict[str, float]:
    """Return the hyperparameters that are traced: floats that the component does not mark static."""
    static = choice.component.static
    return {k: v for k, v in choice.params.items() if isinstance(v, float) and k not in static}


def statics(choice: Choice) -> dict[str, Any]:
    """Return the hyperparameters that are compile-time constants: all that `floats` does not return."""
    traced = floats(choice)
    return {k: v for k, v in choice.used.items() if k not in traced}


def defaults(component: Component) -> dict[str, Any]:
    """Return the defaults of a component's hyperparameters, fitted to their annotations; `REQUIRED` if there is none.

    Raises:
        PluginError: if a default does not fit its own annotation, or cannot be written in gin.
    """
    # a list or a dict is copied, so that none is shared by two configurations
    return {name: copy.copy(v) if isinstance(v, list | dict) else v for name, v in _defaults(component).items()}


@functools.lru_cache(maxsize=1024)
def _defaults(component: Component) -> dict[str, Any]:
    found = {}
    for name, value in component.params.items():
        try:
            found[name] = value if value is REQUIRED else fit(value, component.hints[name])
        except Mismatch as error:
            raise PluginError(f"default of {component.label}.{name} of {component.origin}: {error}") from error
    return found


@attrs.frozen(kw_only=True)
class Unused:
    """A valid binding that has no effect in this configuration, and the reason."""

    key: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} ({self.place}) has no effect: {self.reason}"


def in_few_lines(unused: Iterable[Unused]) -> list[str]:
    """Return bindings without effect as text, a line for all those of one file that have the same reason.

    >>> bound = {"kl.k3.a": "a.gin:1", "kl.k3.b": "a.gin:4"}
    >>> in_few_lines(Unused(key=key, place=place, reason="train.kl is None") for key, place in bound.items())
    ['kl.k3.a and kl.k3.b (a.gin:1, 4) have no effect: train.kl is None']
    """
    alike: dict[tuple[str, str], list[tuple[Unused, str]]] = {}
    for each in unused:
        file, colon, line = each.place.rpartition(":")
        file, line = (file, line) if colon and line.isdecimal() else (each.place, "")
        alike.setdefault((file, each.reason), []).append((each, line))
    return [
        f"{_together(group)} ({file}:{', '.join(line for _, line in group)}) have no effect: {reason}"
        if len(group) > 1
        else str(group[0][0])
        for (file, reason), group in alike.items()
    ]


def _together(group: Sequence[tuple[Unused, str]]) -> str:
    *keys, last = (each.key for each, _ in group)
    return f"{', '.join(keys)} and {last}"


@attrs.frozen(kw_only=True)
class Config:
    """The complete configuration of a run; two are equal if their settings, components and parameters are.

    `choices` maps the path of a slot to its choice, with an index if the slot holds several: `train.policy_loss`,
    `train.rewards[0]`. Slots that hold None are omitted, except for `eval.task`, which is then the training task with
    the parameters that the scope `eval` gives it. Components without a slot (fields that the plan adds, and configured
    components of a kind that no setting chooses) are found under `kind.name`.

    Attributes:
        sections: the settings, by the name of their section.
        choices: the chosen components.
        plan: the work of a step; None if the configuration was read without planning it.
        schema: the sections and slots that the configuration may have.
        origins: the origin of each setting.
        unused: valid bindings that have no effect.
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
        """Settings of the training loop."""
        return self.sections["train"]

    @property
    def critic(self) -> Critic:
        """Settings of the critic."""
        return self.sections["critic"]

    @property
    def sft(self) -> Sft:
        """Settings of the supervised warm start."""
        return self.sections["sft"]

    @property
    def sampling(self) -> Sampling:
        """Settings of the sampler."""
        return self.sections["sampling"]

    @property
    def eval(self) -> Eval:
        """Settings of the evaluation."""
        return self.sections["eval"]

    @property
    def run(self) -> Run:
        """Settings of how and where the run happens."""
        return self.sections["run"]

    @property
    def mesh(self) -> Mesh:
        """Settings of the devices of the policy, and of every model without devices of its own."""
        return self.sections["mesh"]

    def mesh_of(self, role: str) -> Mesh:
        """Return the devices of a role, or of a kind whose components compute with a model."""
        own = self.sections.get(f"{role}/{MESH}")
        given = attrs.asdict(own) if own else {}
        return attrs.evolve(self.mesh, **{name: value for name, value in given.items() if value is not None})

    @property
    def apart(self) -> dict[str, Mesh]:
        """The devices of each role or kind that has other devices than the policy, or another sharding."""
        meshes = {role: self.mesh_of(role) for role in self.schema.places}
        return {role: mesh for role, mesh in meshes.items() if mesh != self.mesh}

    @property
    def memory(self) -> Memory:
        """Settings of where data is kept while it is not needed."""
        return self.sections["memory"]

    def setting(self, path: str) -> Any:
        """Return the value of a setting: `config.setting('train.kl_coef')`.

        Raises:
            KeyError: if there is no such setting.
        """
        section, _, field = path.partition(".")
        if section not in self.sections or not hasattr(self.sections[section], field):
            raise KeyError(f"'{path}' is not a setting.{nearest(path, self.origins)}")
        return getattr(self.sections[section], field)

    def choice(self, path: str) -> Choice:
        """Return the choice of a slot.

        Raises:
            KeyError: if the slot is unknown, or holds None.
        """
        if path not in self.choices:
            raise KeyError(f"'{path}' chooses no component.{nearest(path, self.choices)}")
        return self.choices[path]

    def several(self, path: str) -> tuple[Choice, ...]:
        """Return all choices of a slot, in order: none, one, or several."""
        held = self.setting(path)
        if isinstance(held, tuple):
            return tuple(self.choices[f"{path}[{i}]"] for i in range(len(held)))
        return (self.choices[path],) if path in self.choices else ()

    def component(self, kind: str, name: str) -> Choice:
        """Return a component as configured without a scope, or else with its defaults.

        For components that can be used without a setting that chooses them, such as fields that the planner adds.

        Raises:
            UnknownNameError: if there is no such component.
            ConfigError: if it has a parameter without a default, and the configuration does not set it.
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
