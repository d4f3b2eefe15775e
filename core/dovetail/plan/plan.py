"""The plan of a step, as data: the collector and the update execute it, and `dovetail explain` prints it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from dovetail.kinds import Kind, Stage
from dovetail.plan.roles import CRITIC, INPUTS, POLICY, WEIGHTS_OF
from dovetail.registry import Component

COLUMN = "column of the task"
"""The provider of a field that is a dataset column."""


@attrs.frozen(kw_only=True)
class Call:
    """A chosen component, and the stage at which it is called.

    Attributes:
        path: the setting that chooses it.
        kind: its kind.
        component: the component.
        stage: the stage that calls it, which need not be the kind's: a KL estimator may be part of the reward.
        model: whose loss or weights it is for, `policy` or `critic`.
        term: whether it is a term of the loss. A loss mask or weight that reads the policy being trained cannot run at
            the stage of its kind; it is called together with the terms, and multiplies them.
        renames: fields to pass in place of those it reads, such as `old_logps` for `logps` where KL is a reward.
        reads: the fields it reads; by default those of its signature.
    """

    path: str
    kind: Kind
    component: Component
    stage: Stage
    model: str = POLICY
    term: bool = False
    renames: Mapping[str, str] = attrs.field(factory=dict)
    reads: tuple[str, ...] = attrs.field(default=attrs.Factory(lambda self: self.component.reads, takes_self=True))

    @property
    def label(self) -> str:
        """`setting = name`, for messages and for the printed plan."""
        return f"{self.path} = {self.component.spelled}"

    @property
    def reads_fields(self) -> bool:
        """Whether it reads fields of the batch; rewards read dataset columns, and engines have a protocol instead."""
        return self.kind.reads == "fields"

    @property
    def inputs(self) -> str:
        """The name, in `INPUTS`, of the inputs whose tokens a term is about."""
        masks = {inputs.fields["mask"]: inputs.name for inputs in INPUTS.values()}
        return masks.get(self.about, "completions")

    @property
    def about(self) -> str:
        """The mask of the tokens that a term is about: the one that it reads, or declares where it reads several."""
        return self.component.declares.get("about") or next(iter(self.masks), "mask")

    @property
    def masks(self) -> tuple[str, ...]:
        """The masks of tokens among the fields that it reads."""
        return tuple(field for field in self.reads if field in WEIGHTS_OF)


@attrs.frozen(kw_only=True)
class Pass:
    """A forward pass: a role's model on some inputs, for some quantities.

    Attributes:
        role: the role whose weights are used.
        inputs: the tokens to evaluate, a name in `INPUTS`.
        quantities: the field components to evaluate.
        live: whether it runs in every update, on the policy being trained, with gradient; otherwise it runs once, at
            stage `passes`.
        beside: roles whose logits some quantity reads too.
    """

    role: str
    inputs: str
    quantities: tuple[str, ...]
    live: bool
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        model = "policy being trained" if self.live else "policy at collection" if self.role == POLICY else self.role
        if self.role == CRITIC:
            model = "critic"
        with_ = f" beside {', '.join(self.beside)}" if self.beside else ""
        return f"{model}{with_} on {self.inputs}: {', '.join(self.quantities)}"


@attrs.define
class Entry:
    """One field of the plan: its provider, the stage that provides it, and its readers."""

    field: str
    stage: str
    provider: str
    origin: str
    readers: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Plan:
    """The work of a step: exactly what the chosen components require.

    Attributes:
        calls: the chosen components, in the order in which a step calls them.
        passes: the forward passes other than those of sampling.
        entries: every field that is used, in the order in which the planner encountered it.
        derived: names of `field` components that are computed from other fields when they are read.
        before_split: those of `derived` that an update computes on its whole mini-batch, before it is split.
        detached: fields that an update obtains by stopping the gradient of another field: `old_logps` from `logps`, if
            the update is on-policy and nothing needs it earlier.
        compared: the trainer's log-probabilities that are comparable with `rollout_logps`; None if none are.
    """

    calls: tuple[Call, ...]
    passes: tuple[Pass, ...]
    entries: tuple[Entry, ...]
    derived: tuple[str, ...]
    before_split: tuple[str, ...]
    detached: Mapping[str, str]
    compared: str | None

    def __contains__(self, field: str) -> bool:
        """Tell whether a field is used."""
        return any(entry.field == field for entry in self.entries)

    def at(self, stage: str, model: str = POLICY) -> tuple[Call, ...]:
        """Return the calls of a stage that belong to a model."""
        return tuple(call for call in self.calls if call.stage.name == stage and call.model == model)

    def passes_of(self, *, live: bool) -> tuple[Pass, ...]:
        """Return the passes that run in every update if `live`, and otherwise those of stage `passes`."""
        return tuple(each for each in self.passes if each.live == live)

    def evaluates(self, role: str, quantity: str, *, live: bool) -> bool:
        """Tell whether a role's model evaluates a quantity on the completions."""
        return any(
            each.role == role and each.live == live and each.inputs == "completions" and quantity in each.quantities
            for each in self.passes
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """The models other than the policy that a step needs, each once."""
        found = [role for each in self.passes for role in (each.role, *each.beside)]
        return tuple(role for role in dict.fromkeys(found) if role != POLICY)

    @property
    def roles_in_update(self) -> tuple[str, ...]:
        """Those of `roles` whose weights every update of the policy needs."""
        found = [role for each in self.passes if each.live and each.role == POLICY for role in each.beside]
        return tuple(dict.fromkeys(found))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs other than the completions that models or components read."""
        used = {each.inputs for each in self.passes}
        fields = {name: set(inputs.fields.values()) for name, inputs in INPUTS.items()}
        completions = fields.pop("completions")
        used |= {name for name, needed in fields.items() if any(field in self for field in needed - completions)}
        return tuple(name for name in INPUTS if name in used and name != "completions")

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the task that are read as fields, with who reads them."""
        return {entry.field: " and ".join(entry.readers) for entry in self.entries if entry.provider == COLUMN}

    @property
    def field_components(self) -> tuple[str, ...]:
        """The `field` components that a step evaluates."""
        quantities = [name for each in self.passes if each.role != CRITIC for name in each.quantities]
        return tuple(dict.fromkeys([*quantities, *self.derived]))
