"""What a step computes, and for whom: data, which the collector and the update carry out and `explain` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from dovetail.kinds import STAGES, Kind, Stage
from dovetail.plan.roles import CRITIC, INPUTS, POLICY, WEIGHTS_OF
from dovetail.registry import Component

COLUMN = "column of the task"
"""Who provides a field that is a dataset column."""


@attrs.frozen(kw_only=True)
class Call:
    """A chosen component, and the stage at which it is called.

    Attributes:
        path: the setting that chooses it.
        kind: what the engine knows about such components.
        component: what is called.
        stage: where; not always the kind's own, as a KL estimator may be a reward.
        model: whose loss or weights it is about, `policy` or `critic`.
        term: it is a term of the loss. A component that the stage of its kind cannot serve, since it reads the policy
            being trained, is called beside the terms and multiplies them.
        renames: fields that it gets under another name, such as `old_logps` for `logps` where KL is a reward.
        reads: the fields it reads, where they are not those of its signature.
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
        """Whether what it reads are fields of the batch; rewards read dataset columns, engines have a protocol."""
        return self.kind.reads == "fields"

    @property
    def inputs(self) -> str:
        """The inputs of which the tokens that a term is about are a part."""
        masks = {inputs.fields["mask"]: inputs.name for inputs in INPUTS.values()}
        return masks.get(self.about, "completions")

    @property
    def about(self) -> str:
        """The mask of the tokens that a term is about: the first one that it reads."""
        return next((field for field in self.reads if field in WEIGHTS_OF), "mask")


@attrs.frozen(kw_only=True)
class Pass:
    """A forward pass: a role's model on some inputs, for some quantities.

    Attributes:
        role: whose weights.
        inputs: on what, a name in `INPUTS`.
        quantities: the field components it evaluates.
        live: in every update, on the policy being trained, with gradient; else once, at the stage `passes`.
        beside: roles whose logits some quantity compares with.
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
    """One field of the plan: who provides it, at which stage, and who reads it."""

    field: str
    stage: str
    provider: str
    origin: str
    readers: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Plan:
    """Exactly the work that the chosen components ask for.

    Attributes:
        calls: the chosen components in the order in which a step calls them.
        passes: the forward passes, beside sampling.
        entries: every field used, in the order in which the plan met it.
        derived: names of `field` components that are computed from other fields when they are read.
        before_split: those of them that an update computes on its whole mini-batch, before it is split.
        detached: fields that an update makes by stopping the gradient of another: `old_logps` of `logps`, where the
            update is on-policy and nothing needs it earlier.
        compared: the trainer's log-probabilities that are like `rollout_logps`; None if none are.
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
        """Return the calls of a stage."""
        return tuple(call for call in self.calls if call.stage.name == stage and call.model == model)

    @property
    def measures_mismatch(self) -> bool:
        """Whether something scores the completions as the sampler has done, so that the two can be compared."""
        return any(self.compared in each.quantities for each in self.passes if each.role == POLICY)

    def passes_of(self, *, live: bool) -> tuple[Pass, ...]:
        """Return the passes of every update, or those of the stage `passes`."""
        return tuple(each for each in self.passes if each.live == live)

    def evaluates(self, role: str, quantity: str, *, live: bool) -> bool:
        """Tell whether a role's model is asked for a quantity of the completions."""
        return any(
            each.role == role and each.live == live and each.inputs == "completions" and quantity in each.quantities
            for each in self.passes
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """The models that a step needs beside the policy, each once."""
        found = [role for each in self.passes for role in (each.role, *each.beside)]
        return tuple(role for role in dict.fromkeys(found) if role != POLICY)

    @property
    def roles_in_update(self) -> tuple[str, ...]:
        """Those of them whose weights every update of the policy reads."""
        found = [role for each in self.passes if each.live and each.role == POLICY for role in each.beside]
        return tuple(dict.fromkeys(found))

    @property
    def inputs(self) -> tuple[str, ...]:
        """What models or components read beside the completions."""
        used = {each.inputs for each in self.passes}
        fields = {name: set(inputs.fields.values()) for name, inputs in INPUTS.items()}
        completions = fields.pop("completions")
        used |= {name for name, needed in fields.items() if any(field in self for field in needed - completions)}
        return tuple(name for name in INPUTS if name in used and name != "completions")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the task that are read as fields."""
        return tuple(entry.field for entry in self.entries if entry.provider == COLUMN)

    @property
    def field_components(self) -> tuple[str, ...]:
        """The `field` components that a step evaluates."""
        quantities = [name for each in self.passes if each.role != CRITIC for name in each.quantities]
        return tuple(dict.fromkeys([*quantities, *self.derived]))


def by_stage(plan: Plan) -> Iterable[tuple[Stage, list[str]]]:
    """Yield every stage with what runs in it, in words."""
    for stage in STAGES:
        live = {"passes": False, "loss_terms": True}.get(stage.name)
        passes = [str(each) for each in plan.passes if each.live == live]
        yield stage, passes + [_said(call) for call in plan.calls if call.stage == stage]


def _said(call: Call) -> str:
    becomes = "" if call.term else " -> " + ", ".join(call.kind.writes) if call.kind.writes else ""
    return call.label + becomes
