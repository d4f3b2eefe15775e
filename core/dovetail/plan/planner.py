"""From the signatures of the chosen components to exactly the work of a step."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

import attrs

from dovetail.errors import PlanError, listing, nearest
from dovetail.plan.glossary import (
    ADVANTAGE,
    CORRECTION,
    CRITIC,
    DATASET,
    FIELDS,
    FORWARD_READS,
    GREEDY,
    LOGITS,
    QUANTITY_READS,
    REWARD,
    ROLE,
    ROLLOUT,
    SCHEDULE,
)
from dovetail.plan.plan import Entry, Level, Plan, Version
from dovetail.registry import Component, Registry

OLD, REF, ANSWER = "old_", "ref_", "answer_"
VERSIONS: dict[str, Version] = {OLD: "old", REF: "ref", ANSWER: "answer"}


@attrs.frozen(kw_only=True)
class Reader:
    """A chosen component, in the role in which it reads.

    `update` readers see the policy being trained; the others run at collection, where the policy at hand is the one
    that sampled: there a bare quantity such as `entropy` means `old_entropy`. `renames` says so for one reader more,
    and `refused` maps fields it must not read to the reason. One that runs at collection sees the advantages only if it
    comes `after_advantages`.
    """

    role: str
    component: Component
    update: bool
    whole_batch: bool = False
    sampled_only: bool = False
    after_advantages: bool = False
    renames: dict[str, str] = attrs.field(factory=dict)
    refused: dict[str, str] = attrs.field(factory=dict)
    reads: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        """`role = name`, for messages and for the printed plan."""
        return f"{self.role} = {self.component.spelled}"


def plan(
    readers: Sequence[Reader], registry: Registry, *, on_policy: bool, has_correction: bool, has_schedule: bool
) -> Plan:
    """Work out the plan.

    Args:
        readers: the chosen components in the order in which a step calls them.
        registry: where `field` components are looked up.
        on_policy: one update per collection, on all of it.
        has_correction: an off-policy correction is chosen, so `is_weights` exists.
        has_schedule: a schedule is chosen, so `schedule_weight` exists.

    Raises:
        PlanError: when a component reads a field that nobody provides, or that does not exist yet where it runs.
    """
    missing = {} if has_correction else {CORRECTION: "a correction provides; set train.correction to a name"}
    missing |= {} if has_schedule else {SCHEDULE: "a schedule provides; set train.schedule to a name"}
    planner = _Planner(registry=registry, missing=missing)
    for reader in readers:
        planner.read_all(reader)
    return planner.finish(on_policy)


@attrs.define
class _Planner:
    registry: Registry
    missing: dict[str, str]
    """Stages that this configuration has not, and who would provide their fields."""
    entries: dict[str, Entry] = attrs.field(factory=dict)
    quantities: dict[str, list[str]] = attrs.field(factory=lambda: {"old": [], "ref": [], "answer": [], "now": []})
    derived: dict[Level, list[str]] = attrs.field(factory=lambda: {"collect": [], "mini": [], "micro": []})
    old_logps_before_update: bool = False
    reference: bool = False
    reference_in_update: bool = False
    answers: bool = False
    critic: bool = False
    greedy: bool = False
    kl: bool = False
    roles: bool = False
    state: bool = False

    def read_all(self, reader: Reader) -> None:
        self.kl = self.kl or reader.component.kind == "kl"
        for field in reader.component.reads if reader.reads is None else reader.reads:
            live = self.need(reader.renames.get(field, field), reader, reader.update)
            if live and reader.whole_batch:
                raise PlanError(
                    f"{reader.label} reads '{field}', which changes during the update; it is computed once on the whole"
                    f" mini-batch, before the split, so it can read 'old_{field}' but not '{field}'"
                )

    def need(self, field: str, reader: Reader, update: bool) -> bool:
        """Plan one field for one reader; tell whether it is differentiable there."""
        if field in reader.refused:
            raise PlanError(f"{reader.label} cannot read '{field}': {reader.refused[field]}")
        if reader.sampled_only and (field not in FIELDS or FIELDS[field].stage not in (ROLLOUT, REWARD)):
            known = [name for name, info in FIELDS.items() if info.stage in (ROLLOUT, REWARD)]
            raise PlanError(
                f"{reader.label} reads '{field}', but decides which groups are trained on right after they are scored;"
                f" it can read {listing(known)}"
            )
        if field in FIELDS:
            return self._engine_field(field, reader, update)
        for prefix, version in VERSIONS.items():
            if field.startswith(prefix) and self._is_quantity(field.removeprefix(prefix)):
                self._forward(version, field.removeprefix(prefix), reader)
                if field == "old_logps" and (not update or reader.whole_batch):
                    self.old_logps_before_update = True
                return False
        if self._is_quantity(field):
            if not update:
                return self.need(OLD + field, reader, update)
            self._forward("now", field, reader)
            return True
        if self.registry.has("field", field):
            return self._derived_field(field, reader, update)
        raise self._nobody(field, reader)

    def _engine_field(self, field: str, reader: Reader, update: bool) -> bool:
        info = FIELDS[field]
        if info.stage == ADVANTAGE and not (update or reader.after_advantages):
            raise PlanError(f"{reader.label} reads '{field}', which does not exist before the advantages are estimated")
        if info.stage in self.missing:
            raise PlanError(f"{reader.label} reads '{field}', which {self.missing[info.stage]}")
        if field == "state":
            _check_state(reader)
            self.state = True
        self.answers = self.answers or info.stage == DATASET
        self.roles = self.roles or info.stage == ROLE
        self.critic = self.critic or info.stage == CRITIC
        self.greedy = self.greedy or info.stage == GREEDY
        if field == "values" and not update:
            return self._engine_field("old_values", reader, update)
        self._note(field, info.stage, "dovetail", reader)
        return field == "values"

    def _forward(self, version: Version, quantity: str, reader: Reader) -> None:
        component = self.registry.get("field", quantity)
        stray = [read for read in component.reads if read not in FORWARD_READS]
        if stray:
            raise PlanError(
                f"field {component.name} of {component.origin} reads {stray[0]!r} besides the forward pass; a field"
                f" that reads {' or '.join(sorted(QUANTITY_READS))} may read only {', '.join(sorted(FORWARD_READS))}"
            )
        logits = LOGITS.intersection(component.reads)
        if logits and "mask" in component.reads:
            raise PlanError(
                f"field {component.name} of {component.origin} reads 'mask' and '{min(logits)}'; a field that reads"
                " 'mask' sees whole completions, and logits exist for a few positions at a time only"
            )
        besides = "ref_logits" in component.reads
        self.reference = self.reference or besides or version == "ref"
        self.reference_in_update = self.reference_in_update or (besides and version == "now")
        self.answers = self.answers or version == "answer"
        if quantity not in self.quantities[version]:
            self.quantities[version].append(quantity)
        name, who = {
            "old": (OLD + quantity, "forward pass of the policy at collection"),
            "ref": (REF + quantity, "forward pass of the reference"),
            "answer": (ANSWER + quantity, "forward pass of the policy at collection, on the task's answer"),
            "now": (quantity, f"forward pass of the update{' and of the reference' * besides}, with gradient"),
        }[version]
        self._note(name, who, str(component.origin), reader)

    def _derived_field(self, field: str, reader: Reader, update: bool) -> bool:
        component = self.registry.get("field", field)
        inner = Reader(role="field", component=component, update=update, after_advantages=reader.after_advantages)
        live = [self.need(read, inner, update) for read in component.reads]
        level: Level = ("micro" if any(live) else "mini") if update else "collect"
        if level == "mini" and "old_logps" in component.reads:
            self.old_logps_before_update = True
        if component.name not in self.derived[level]:
            self.derived[level].append(component.name)
        self._note(field, f"field component, per {_LEVELS[level]}", str(component.origin), reader)
        return any(live)

    def _is_quantity(self, field: str) -> bool:
        return self.registry.has("field", field) and bool(
            QUANTITY_READS.intersection(self.registry.get("field", field).reads)
        )

    def _note(self, field: str, provider: str, origin: str, reader: Reader) -> None:
        entry = self.entries.setdefault(field, Entry(field, provider, origin))
        if reader.label not in entry.readers:
            entry.readers.append(reader.label)

    def _nobody(self, field: str, reader: Reader) -> PlanError:
        known = [*FIELDS, *_with_versions(self.registry)]
        return PlanError(
            f"{reader.label} ({reader.component.origin}) reads the field '{field}', which nobody provides."
            f"{nearest(field, known)} Known: {listing(known, 40)}. A plugin provides a field by registering a component"
            f" of kind 'field' under its name{reader.component.place}"
        )

    def finish(self, on_policy: bool) -> Plan:
        old = list(self.quantities["old"])
        from_update = on_policy and "old_logps" in self.entries and not self.old_logps_before_update
        if from_update:
            old.remove("logps")
            self.entries["old_logps"].provider = "stop_gradient(logps): the update is on-policy"
        return Plan(
            entries=tuple(self.entries.values()),
            old=tuple(old),
            ref=tuple(self.quantities["ref"]),
            answer=tuple(self.quantities["answer"]),
            answers=self.answers,
            reference=self.reference,
            reference_in_update=self.reference_in_update,
            now=tuple(self.quantities["now"]),
            old_logps_from_update=from_update,
            critic=self.critic,
            greedy=self.greedy,
            kl=self.kl,
            roles=self.roles,
            state=self.state,
            derived={level: tuple(names) for level, names in self.derived.items()},
        )


_LEVELS: dict[Level, str] = {"collect": "collection", "mini": "mini-batch", "micro": "micro-batch"}


def _check_state(reader: Reader) -> None:
    """Refuse a reader of `state` that is no estimator, or that does not say how the state begins and goes on."""
    if reader.component.kind != "advantage":
        raise PlanError(f"{reader.label} reads 'state', which estimators (kind 'advantage') alone keep")
    target = reader.component.load()
    if not (callable(getattr(target, "init", None)) and callable(getattr(target, "update", None))):
        raise PlanError(
            f"{reader.label} reads 'state' and does not say how it begins and goes on: make it a class with"
            " init(self, roles), and update(self, ...) that reads what __call__ reads and returns the next state"
        )
    reads = tuple(inspect.signature(target.update).parameters)[1:]  # pyright: ignore[reportFunctionMemberAccess]
    if reads != reader.component.reads:
        raise PlanError(
            f"{reader.label}: update reads {', '.join(reads)}; it is called with what __call__ reads,"
            f" {', '.join(reader.component.reads)}"
        )


def _with_versions(registry: Registry) -> Iterable[str]:
    for name in registry.names("field"):
        yield name
        if QUANTITY_READS.intersection(registry.get("field", name).reads):
            yield from (prefix + name for prefix in VERSIONS)
