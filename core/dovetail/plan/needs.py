"""Determine what the calls of a step need: fields with their providers, and forward passes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from dovetail.errors import PlanError, listing, nearest
from dovetail.kinds import FIELDS, STAGE, Kind, comes_before
from dovetail.kinds.fields import ENGINE, HIDDEN, LOGITS
from dovetail.plan.compared import KEPT, SAMPLER, SUPPORT, VOCABULARY, likened
from dovetail.plan.plan import COLUMN, Call, Entry, Pass, Plan
from dovetail.plan.roles import COMPLETIONS, CRITIC, OLD, POLICY, Quantity, logits_of, parse, spellings
from dovetail.registry import Component, Registry

WATCH: Final = Kind(name="monitor", summary="a quantity that is logged", reads="fields")


class _PassOf(NamedTuple):
    """What forward passes with the same model on the same tokens have in common; see `Pass`."""

    role: str
    inputs: str
    live: bool


@attrs.define(kw_only=True)
class Planner:
    """Takes the calls one after another, and collects what they need.

    Attributes:
        registry: where `field` components are looked up.
        roles: the model roles other than policy and critic.
        missing: fields that this configuration does not have, with what would provide them.
        columns: returns those of the task, which can be read as fields if they hold numbers. It may open the task's
            data, so it is asked only for a name that is not a field.
        on_policy: whether there is one update per collection, on all of it.
        estimator: the chosen advantage estimator, which may or may not return `returns`.
        compared: the trainer's log-probabilities that are comparable with the sampler's; see `dovetail.plan.compared`.
        unlike: explains why there are none, with the remedies.
        written: fields that calls write and the engine does not, by name, each with its writer.
    """

    registry: Registry
    roles: tuple[str, ...] = ("reference",)
    missing: Mapping[str, str] = attrs.field(factory=dict)
    columns: Callable[[], Collection[str]] = tuple
    on_policy: bool = True
    estimator: Component | None = None
    compared: str | None = VOCABULARY
    unlike: Callable[[], str] = str
    written: dict[str, Call] = attrs.field(factory=dict)
    _entries: dict[str, Entry] = attrs.field(factory=dict)
    _passes: dict[_PassOf, dict[str, None]] = attrs.field(factory=dict)
    _beside: dict[_PassOf, dict[str, None]] = attrs.field(factory=dict)
    _derived: dict[str, None] = attrs.field(factory=dict)
    _before_split: dict[str, None] = attrs.field(factory=dict)
    _not_detached: set[str] = attrs.field(factory=set)
    _writers: dict[str, str] = attrs.field(factory=dict)

    @property
    def needs_critic(self) -> bool:
        """Whether some call reads the critic's values, so that a critic is trained."""
        return any(key.role == CRITIC for key in self._passes)

    def read(self, call: Call) -> None:
        """Plan the fields that a call reads, and note those that it writes.

        Raises:
            PlanError: if a field does not exist, or is not available where the component is called.
        """
        if not call.reads_fields:
            return
        self._check_compared(call)
        _check_about(call)
        for field in call.reads:
            live = self._need(call.renames.get(field, field), call)
            if field == "key" and call.stage.level == "micro":
                raise _draws_by_the_split(call)
            if live and call.stage.level == "mini":
                raise PlanError(
                    f"{call.label} reads '{field}', which changes during the update; it is computed once on the whole"
                    f" mini-batch, before the split, so it can read 'old_{field}' but not '{field}'"
                )
        for field in call.kind.writes:
            if field not in FIELDS:
                self.written[field] = call
            elif FIELDS[field].stage == call.stage.name:
                self._writers[field] = call.label

    def _check_compared(self, call: Call) -> None:
        """Refuse a component that would compare log-probabilities over a support with others over the vocabulary."""
        ours = [read for read in call.reads if read.removeprefix(OLD) == VOCABULARY]
        if self.compared is None and SAMPLER not in self.missing and SAMPLER in call.reads and ours:
            raise PlanError(f"{call.label} compares '{SAMPLER}' with '{ours[0]}': {self.unlike()}")

    def watch(self, path: str, component: Component) -> None:
        """Plan a field component that the update only logs."""
        call = Call(path=path, kind=WATCH, component=component, stage=STAGE["loss_terms"], reads=(component.name,))
        self.read(call)

    def note_setting(self, fields: Iterable[str], setting: str) -> None:
        """Plan fields of the engine that a setting needs, rather than a call."""
        for field in fields:
            entry = self._entries.setdefault(field, Entry(field, FIELDS[field].stage, "the engine", "dovetail"))
            entry.readers.append(setting)

    def _need(self, field: str, call: Call) -> bool:
        """Plan one field for one reader; return whether it is differentiable there."""
        if field in FIELDS:
            return self._engine_field(field, call)
        if field in self.written:
            return self._written_field(field, call)
        quantity = parse(field, self.roles, self._is_quantity)
        if quantity:
            return self._quantity(quantity, call)
        if self.registry.has("field", field):
            return self._derived_field(field, call)
        if field in self.columns():
            self._note(field, "drawn", COLUMN, "dataset", call)
            return False
        raise self._nobody(field, call)

    def _engine_field(self, field: str, call: Call) -> bool:
        info = FIELDS[field]
        if field in self.missing:
            raise PlanError(f"{call.label} reads '{field}', which {self.missing[field]}")
        if field == "values" and (call.model != CRITIC or call.stage.level != "micro"):
            return self._engine_field("old_values", call)
        if field in ("values", "old_values"):
            self._pass(CRITIC, "completions", "values", live=field == "values")
            self._pass(CRITIC, "completions", "values", live=False)
        self._check_time(field, info.stage, call, begun=info.begun)
        if field == "state":
            _check_state(call)
        if field == "returns":
            self._check_returns(call)
        self._note(field, info.stage, self._writers.get(field, "the engine"), "dovetail", call)
        return field == "values"

    def _written_field(self, field: str, call: Call) -> bool:
        writer = self.written[field]
        self._check_time(field, writer.stage.name, call)
        self._note(field, writer.stage.name, writer.label, str(writer.component.origin), call)
        return writer.stage.level == "micro"

    def _check_time(self, field: str, stage: str, call: Call, *, begun: bool = False) -> None:
        """Refuse a field that does not exist yet when the reader is called."""
        if stage == ENGINE or comes_before(stage, call.stage.name) or (begun and stage == call.stage.name):
            return
        known = [
            name for name, info in FIELDS.items() if info.stage == ENGINE or comes_before(info.stage, call.stage.name)
        ]
        raise PlanError(
            f"{call.label} reads '{field}', which does not exist before the stage '{stage}' is over; it is called at"
            f" '{call.stage.name}' and can read {listing(known, 40)}"
        )

    def _quantity(self, quantity: Quantity, call: Call) -> bool:
        if call.stage.level == "host":
            self._check_time(quantity.field, "passes", call)
        update = call.stage.level in ("mini", "micro")
        if quantity.live and not update:
            if quantity.name == "logps" and quantity.inputs == "completions":
                raise PlanError(
                    f"{call.label} cannot read 'logps': it is the policy being trained, which only losses see; a"
                    " component that runs before the update can read 'old_logps'"
                )
            return self._need(OLD + quantity.field, call)
        if call.model == CRITIC and quantity.live:
            raise PlanError(
                f"{call.label} reads '{quantity.field}' of the policy being trained, which the critic's"
                f" update does not compute; read '{OLD}{quantity.field}'"
            )
        component = self._forward_component(quantity, call)
        if KEPT in component.reads:
            if quantity.inputs != COMPLETIONS.name:
                raise PlanError(
                    f"{call.label} reads '{quantity.field}', but only sampled completions have a support; the"
                    f" {quantity.inputs} were not sampled"
                )
            self._engine_field(KEPT, call)
        beside = [role for role in self.roles if logits_of(role) in component.reads]
        self._pass(quantity.role, quantity.inputs, quantity.name, live=quantity.live, beside=beside)
        if call.stage.level != "micro" or call.model == CRITIC:
            self._not_detached.add(quantity.field)
        who = Pass(role=quantity.role, inputs=quantity.inputs, quantities=(), live=quantity.live, beside=tuple(beside))
        stage = "loss_terms" if quantity.live else "passes"
        gradient = ", with gradient" if quantity.live else ""
        said = f"forward pass: {str(who).removesuffix(': ')}{gradient}"
        self._note(quantity.field, stage, said, str(component.origin), call)
        return quantity.live

    def _forward_component(self, quantity: Quantity, call: Call) -> Component:
        component = self.registry.get("field", quantity.name)
        offered = {LOGITS, HIDDEN, KEPT, "tokens", "mask", *map(logits_of, self.roles)}
        stray = [read for read in component.reads if read not in offered]
        absent = [read.removesuffix(f"_{LOGITS}") for read in stray if read.endswith(f"_{LOGITS}")]
        if absent:
            raise PlanError(
                f"{call.label} reads '{quantity.field}', for which field {component.name} of {component.origin} reads"
                f" '{absent[0]}_{LOGITS}', but there is no model role '{absent[0]}'.{_opening(absent[0])}"
            )
        if stray:
            raise PlanError(
                f"field {component.name} of {component.origin} reads {stray[0]!r} besides the forward pass; a field"
                f" that reads {' or '.join(sorted({LOGITS, HIDDEN}))} may read only {', '.join(sorted(offered))}"
            )
        logits = [read for read in component.reads if read.endswith(LOGITS)]
        if logits and "mask" in component.reads:
            raise PlanError(
                f"field {component.name} of {component.origin} reads 'mask' and '{min(logits)}'; a field that reads"
                " 'mask' sees whole completions, and logits exist for a few positions at a time only"
            )
        return component

    def _pass(self, role: str, inputs: str, quantity: str, *, live: bool, beside: Iterable[str] = ()) -> None:
        key = _PassOf(role, inputs, live)
        self._passes.setdefault(key, {})[quantity] = None
        self._beside.setdefault(key, {}).update(dict.fromkeys(beside))

    def _derived_field(self, field: str, call: Call) -> bool:
        component = self.registry.get("field", field)
        renames = likened(component.reads, self.compared)
        inner = attrs.evolve(call, path="field", component=component, reads=component.reads, renames=renames)
        self._check_compared(inner)
        reads = [renames.get(read, read) for read in component.reads]
        live = [self._need(read, inner) for read in reads]
        level = call.stage.level
        if any(live) and "key" in component.reads:
            raise _draws_by_the_split(inner)
        if level in ("mini", "micro") and not any(live):
            # a component that ranks tokens must see the whole mini-batch, however it is split afterwards
            self._before_split[component.name] = None
            self._not_detached.update(reads)
        self._derived[component.name] = None
        where = "micro-batch" if any(live) else "mini-batch" if level in ("mini", "micro") else "collection"
        self._note(field, call.stage.name, f"field component, per {where}", str(component.origin), call)
        return any(live)

    def _is_quantity(self, field: str) -> bool:
        """Whether a name is that of a field component that is evaluated inside a forward pass."""
        if not self.registry.has("field", field):
            return False
        return is_quantity(self.registry.get("field", field))

    def _check_returns(self, call: Call) -> None:
        """Refuse a reader of `returns` if the estimator's annotation says that it does not return them."""
        if self.estimator is not None and _returns_one(self.estimator):
            raise PlanError(
                f"{call.label} reads 'returns', which advantage {self.estimator.name} does not return; choose an"
                " estimator that returns (advantages, returns)"
            )

    def _note(self, field: str, stage: str, provider: str, origin: str, call: Call) -> None:
        entry = self._entries.setdefault(field, Entry(field, stage, provider, origin))
        label = call.label
        if label not in entry.readers:
            entry.readers.append(label)

    def _nobody(self, field: str, call: Call) -> PlanError:
        known = [*FIELDS, *self.written, *_known_fields(self.registry, self.roles)]
        role = field.partition("_")[0]
        opened = ""
        if role and self._is_quantity(field.removeprefix(f"{role}_")):
            opened = _opening(role)
        who = f"{call.label} ({call.component.origin}) reads the field '{field}', which nobody provides"
        for kind in self.registry.kinds.values():
            if field in kind.writes and kind.stage:
                cure = f"set {kind.path} to one of {listing(self.registry.names(kind.name))}"
                if not comes_before(kind.stage, call.stage.name):
                    cure = f"but not before the stage '{kind.stage}' is over, and this is called at '{call.stage.name}'"
                return PlanError(f"{who}: the kind '{kind.name}' writes it; {cure}{call.component.place}")
        return PlanError(
            f"{who}.{opened}"
            f"{nearest(field, known)} Known: {listing(known, 40)}. A plugin provides a field by registering a component"
            f" of kind 'field' under its name; a column of the task that holds numbers is one too{call.component.place}"
        )

    def finish(self, chosen: Sequence[Call]) -> Plan:
        """Return the plan of a step with these calls, all of which have been read."""
        detached = {}
        key = _PassOf(POLICY, COMPLETIONS.name, live=False)
        for name in (VOCABULARY, SUPPORT) if self.on_policy else ():
            old = OLD + name
            if old in self._entries and old not in self._not_detached:
                del self._passes[key][name]
                detached[old] = name
                self._pass(POLICY, COMPLETIONS.name, name, live=True)
                self._entries[old].provider = f"stop_gradient({name}): the update is on-policy"
        passes = [
            Pass(**key._asdict(), quantities=tuple(names), beside=tuple(self._beside[key]))
            for key, names in self._passes.items()
            if names
        ]
        return Plan(
            calls=tuple(chosen),
            passes=tuple(passes),
            entries=tuple(self._entries.values()),
            derived=tuple(self._derived),
            before_split=tuple(self._before_split),
            detached=detached,
            compared=self.compared,
        )


def _opening(role: str) -> str:
    return f" roles.{role} = 'frozen' would open the model role '{role}', and {role}.model say which model."


def _check_about(call: Call) -> None:
    """Refuse a term that reads several masks without saying over the tokens of which it is summed."""
    masks, said = call.masks or ("mask",), call.component.declares.get("about")
    if call.term and (said not in masks if said else len(masks) > 1):
        claims = f", and declares about={said!r}" if said else ""
        raise PlanError(
            f"{call.label} reads {' and '.join(masks)}{claims}; a term is summed over the tokens of one:"
            f" @dovetail.declares(about='{masks[0]}') says of which{call.component.place}"
        )


def _draws_by_the_split(call: Call) -> PlanError:
    return PlanError(
        f"{call.label} reads 'key', and is called for one micro-batch at a time, so that its draws would depend on the"
        " split; read 'row_keys', one for each completion"
    )


def is_quantity(component: Component) -> bool:
    """Tell whether a `field` component is evaluated inside a forward pass: whether it reads logits or hidden states."""
    return any(read == HIDDEN or read.endswith(LOGITS) for read in component.reads)


def _known_fields(registry: Registry, roles: Iterable[str]) -> Iterable[str]:
    for name in registry.names("field"):
        if is_quantity(registry.get("field", name)):
            yield from spellings(name, roles)
        else:
            yield name


def _returns_one(estimator: Component) -> bool:
    """Whether an estimator's annotation says that it returns advantages and nothing else."""
    target = estimator.load()
    function = vars(target).get("__call__", target) if inspect.isclass(target) else target
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, SyntaxError):  # of what is imported for type checkers alone nothing is known
        return False
    kind = typing.get_origin(hint) or hint
    return hint is not None and not (inspect.isclass(kind) and issubclass(kind, tuple))


def _check_state(call: Call) -> None:
    """Refuse a reader of `state` that is not an estimator, or whose `update` does not match.

    That it has one, and `init`, its kind's protocol asks for (`dovetail.registry.contract`).
    """
    if call.kind.name != "advantage":
        raise PlanError(f"{call.label} reads 'state', which only estimators (kind 'advantage') have")
    estimator: Any = call.component.load()
    reads = tuple(inspect.signature(estimator.update).parameters)[1:]
    if reads != call.component.reads:
        raise PlanError(
            f"{call.label}: update reads {', '.join(reads)}; it is called with what __call__ reads,"
            f" {', '.join(call.component.reads)}"
        )
