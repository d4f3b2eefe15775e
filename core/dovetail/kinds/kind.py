"""The record of a kind of component.

It holds everything that the planner, the collector, the update, the conformance suite, the scaffold and the
documentation need to treat a third party's kind like a built-in one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from dovetail.errors import PluginError, listing, nearest
from dovetail.kinds.stages import NAMES, STAGE

UNREAD: Final = ("drawn", "after_step")
"""The stages at which no fields are there to be read."""


@attrs.frozen
class Around:
    """A hyperparameter that names a component of another kind, which is put around the component; by default None.

    The component that it names has a method `around(component, built)`, which takes the built function or instance and
    returns what is called in its place.
    """

    kind: str


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class Kind:
    """A family of interchangeable components.

    Attributes:
        name: the name that configs and registrations use.
        summary: what a component of the kind reads and returns, in one line.
        stage: the stage of a step at which its components are called; None if no stage calls them.
        many: whether a config chooses any number of them, in order, rather than one.
        setting: the setting that chooses them, by default `train.NAME` for a kind with a stage. Other sections may
            choose components of the kind too (`critic.optimizer`).
        default: the default of that setting. If it is a name, the setting cannot be None; if it is None, the setting is
            optional.
        reads: what the positional parameters of its components name: `fields` of the batch, dataset `columns`, or
            nothing that the engine looks up (None).
        offers: what positional parameters may name where nothing is looked up, because the caller has just these; empty
            if parameters are passed by position.
        writes: the fields that a component's results become, in order; a component may omit the last ones. How the
            results of several components are combined depends on the field (`FieldInfo.combine`).
        term: whether its components return per-token losses, which are terms of the sum that the update minimises.
        coefficient: for a term, the setting that holds its coefficient; a term whose coefficient is zero is not
            computed, unless a controller (`NAME_controller` beside `NAME_coef`) may change that. None means 1, or the
            parameter `coef` if `parameters` gives its components one.
        corrected: for a term, whether off-policy weights and loss masks multiply it.
        moved: settings that move the call to another stage: `{"train.kl_in": {"reward": "token_rewards"}}`.
        parameters: hyperparameters that every component of the kind has in addition to its own, with their defaults.
            The engine uses them; components do not see them. Instead of a default there may be an `Around`.
        protocol: `module:Class` of the protocol that a class must implement; None if a signature is the whole contract.
        optional: methods and properties that a class may have beside those, which are looked for by name. A public one
            whose name is nearly that of one that is not there is refused as a misspelling.
        scaffold: whether `dovetail plugin new` starts from a function or from a class.
        versions: the versions of the kind's contract that `origin` supports; the last one is current.
        placed: whether what its components compute may have devices of its own, `NAME/mesh`.
        exclusive: whether each name has a single owner, because its readers cannot say whose component they mean.
        reserved: names that no component may have.
        origin: the distribution that opened the kind.
    """

    name: str
    summary: str
    stage: str | None = None
    many: bool = False
    setting: str | None = None
    default: str | tuple[str, ...] | None = attrs.field(default=None, converter=_tuple)
    reads: Literal["fields", "columns"] | None = None
    offers: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    writes: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    term: bool = False
    coefficient: str | None = None
    corrected: bool = False
    moved: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    protocol: str | None = None
    optional: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    scaffold: Literal["function", "class"] = "function"
    versions: tuple[int, ...] = attrs.field(default=(1,), converter=_tuple)
    placed: bool = False
    exclusive: bool = False
    reserved: frozenset[str] = frozenset()
    origin: Any = attrs.field(default=None, eq=False)

    def check(self, *, own: bool = False) -> None:
        """Refuse an inconsistent record, and one by which nothing would be called.

        `own` says that it is one of the engine's, which calls the components of some by protocols of their own.

        Raises:
            PluginError: naming the kind, what is wrong and what is allowed.
        """
        mistakes = (*self._contradictions(), *(() if own else self._not_called()))
        for mistake in mistakes:
            raise PluginError(f"kind '{self.name}'{mistake}")

    def _contradictions(self) -> Iterator[str]:
        """Yield what does not fit together, as the rest of a sentence about the kind."""
        if isinstance(self.writes, str) or not all(isinstance(name, str) for name in self.writes):
            yield f": writes={self.writes!r} is not a tuple of names of fields"
        for stage in (self.stage, *(to for where in self.moved.values() for to in where.values())):
            if stage is not None and stage not in STAGE:
                yield f": unknown stage '{stage}'.{nearest(stage, NAMES)} Stages: {listing(NAMES)}"
                return
        if self.stage and not (self.writes or self.term) and STAGE[self.stage].level != "host":
            yield (
                f" is called at stage '{self.stage}' and writes no field, so calling it would change nothing; say"
                " writes=('FIELD',), or term=True at stage 'loss_terms'"
            )
        if self.stage in UNREAD and self.reads == "fields":
            there = ", ".join(name for name in NAMES if name not in UNREAD)
            yield f": nothing is called with fields at stage '{self.stage}'; those that are: {there}"
        if self.term != (self.stage == "loss_terms"):
            yield ": what is called at stage 'loss_terms' is a term, and nothing else is"

    def _not_called(self) -> Iterator[str]:
        """Yield why the engine, which calls what reads fields at a stage, would not call a plugin's kind as it says."""
        if self.stage is None and self.writes:
            yield f" writes {listing(self.writes)}, and has no stage at which it is called; stages: {listing(NAMES)}"
        if self.stage is not None and self.reads != "fields":
            yield (
                f" has the stage '{self.stage}', at which nothing but what reads fields is called; say reads='fields',"
                " or leave the stage out if your plugin calls its components itself"
            )
        if self.stage == "scored" and not self.writes:
            yield " is called at stage 'scored' only to write fields; say writes=('FIELD',)"
        if self.coefficient is not None:
            yield f": no controller knows {self.coefficient}; say parameters={{'coef': 1.0}} in place of coefficient"

    @property
    def path(self) -> str | None:
        """The setting that chooses its components; None if there is no such setting."""
        return self.setting or (f"train.{self.name}" if self.stage else None)

    def load_protocol(self) -> type[Any] | None:
        """Import and return the protocol; None if a signature is the whole contract."""
        if self.protocol is None:
            return None
        module, _, attribute = self.protocol.partition(":")
        return getattr(importlib.import_module(module), attribute)
