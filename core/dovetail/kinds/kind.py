"""What the engine knows about a kind of component: everything that planner, collector, update, conformance suite,
scaffold and documentation need to treat a third party's kind as one of ours."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from dovetail.errors import PluginError, listing, nearest
from dovetail.kinds.stages import NAMES, STAGE


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class Kind:
    """A family of interchangeable components.

    Attributes:
        name: what configs and registrations call it.
        summary: what a component of it reads and returns, in one line.
        stage: at which stage of a step its components are called; None if the engine calls them elsewhere, or not.
        many: a config chooses any number of them, in order, instead of one.
        setting: the setting that chooses, by default `train.NAME` for a kind with a stage. Other sections may choose
            components of the kind too (`critic.optimizer`).
        default: what the setting holds where no config says anything. A name makes the setting required; None makes it
            optional.
        reads: what the positional parameters of its components name: `fields` of the batch, dataset `columns`, or
            nothing that the engine looks up.
        writes: the fields that a component's result becomes, in order; a component may leave out the last ones. How
            the results of several components combine is the field's to say (`docs/glossary.md`).
        term: its components return per-token losses, terms of the sum that the update minimises.
        coefficient: for a term, the setting with its coefficient; zero means that it is not computed. None means 1,
            or the parameter `coef` where `parameters` gives its components one.
        corrected: for a term, that off-policy weights and loss masks multiply it.
        moved: another setting that moves the call: `{"train.kl_in": {"reward": "token_rewards"}}`.
        parameters: hyperparameters that every component of the kind has beside its own, with their defaults. The
            engine uses them; components do not see them.
        protocol: `module:Class` of what a stateful component must have.
        scaffold: whether `dovetail plugin new` begins with a function or with a class.
        versions: of its contract, those that `origin` understands, the last being today's.
        placed: what its components compute may have devices of its own, `NAME/mesh`.
        exclusive: a name has one owner, since those who use it cannot say whose they mean.
        reserved: names that no component may have.
        origin: who opened it.
    """

    name: str
    summary: str
    stage: str | None = None
    many: bool = False
    setting: str | None = None
    default: str | tuple[str, ...] | None = attrs.field(default=None, converter=_tuple)
    reads: Literal["fields", "columns"] | None = None
    writes: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    term: bool = False
    coefficient: str | None = None
    corrected: bool = False
    moved: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    protocol: str | None = None
    scaffold: Literal["function", "class"] = "function"
    versions: tuple[int, ...] = attrs.field(default=(1,), converter=_tuple)
    placed: bool = False
    exclusive: bool = False
    reserved: frozenset[str] = frozenset()
    origin: Any = attrs.field(default=None, eq=False)

    def check(self) -> None:
        """Refuse a record that cannot be carried out.

        Raises:
            PluginError: naming the kind and what is allowed.
        """
        for stage in (self.stage, *(to for where in self.moved.values() for to in where.values())):
            if stage is not None and stage not in STAGE:
                raise PluginError(
                    f"kind '{self.name}': unknown stage '{stage}'.{nearest(stage, NAMES)} Stages: {listing(NAMES)}"
                )
        if self.stage and not (self.writes or self.term) and STAGE[self.stage].level != "host":
            raise PluginError(
                f"kind '{self.name}' is called at stage '{self.stage}' and writes no field, so calling it would change"
                " nothing; say writes=('FIELD',), or term=True at stage 'loss_terms'"
            )
        if self.stage in ("drawn", "after_step") and self.reads == "fields":
            raise PluginError(
                f"kind '{self.name}': nothing is called with fields at stage '{self.stage}'; those that are:"
                f" {', '.join(name for name in NAMES if name not in ('drawn', 'after_step'))}"
            )
        if self.term != (self.stage == "loss_terms"):
            raise PluginError(
                f"kind '{self.name}': what is called at stage 'loss_terms' is a term, and nothing else is"
            )

    @property
    def path(self) -> str | None:
        """The setting that chooses its components; None where the engine has none for it."""
        return self.setting or (f"train.{self.name}" if self.stage else None)

    def load_protocol(self) -> type[Any] | None:
        """Import the protocol; None where a signature is the whole contract."""
        if self.protocol is None:
            return None
        module, _, attribute = self.protocol.partition(":")
        return getattr(importlib.import_module(module), attribute)
