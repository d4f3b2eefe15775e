"""Resolve bindings `kind.name.parameter = value` into the parameters of the chosen components."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dovetail.config.located import locate
from dovetail.config.parse import Binding
from dovetail.config.problems import Problems
from dovetail.config.resolved import DEFAULT, Choice, Unused, defaults
from dovetail.config.schema import Schema
from dovetail.config.sections import FORMS, Chosen
from dovetail.config.types import Mismatch, fit
from dovetail.errors import DovetailError, PluginError, UnknownNameError, listing, nearest
from dovetail.registry import REQUIRED, Component, Registry, Renamed, normal
from dovetail.registry.compatibility import ENGINE
from dovetail.registry.contract import lacking
from dovetail.registry.places import first_line, raised_in


def resolve_parameters(
    bindings: Iterable[Binding],
    chosen: Mapping[str, Chosen],
    schema: Schema,
    registry: Registry,
    problems: Problems,
    *,
    trusted: bool = True,
) -> tuple[dict[str, Choice], tuple[Unused, ...]]:
    """Give every chosen component its parameters.

    A value bound in the scope of the component's slot is used first, then one without a scope, then the default.

    Args:
        bindings: those of parameters.
        chosen: the components.
        schema: what a configuration may hold.
        registry: where names are looked up.
        problems: where what is wrong is noted.
        trusted: whether a file may name programs to run and servers to call.

    Returns:
        The choices by slot, and the valid bindings that have no effect.
    """
    resolver = _ParameterResolver(chosen, schema, registry, problems, trusted)
    for binding in bindings:
        resolver.take(binding)
    choices = resolver.choices()
    return choices, resolver.unused()


@attrs.frozen
class _Given:
    value: Any
    binding: Binding


@attrs.define
class _ParameterResolver:
    chosen: Mapping[str, Chosen]
    schema: Schema
    registry: Registry
    problems: Problems
    trusted: bool
    _given: dict[tuple[str, Component, str], _Given] = attrs.field(factory=dict)
    """By scope, component and parameter."""
    _used: set[Binding] = attrs.field(factory=set)
    _unchecked: list[tuple[Binding, str]] = attrs.field(factory=list)
    """Bindings for components that cannot be imported, and why."""

    def take(self, binding: Binding) -> None:
        """Record a binding's value for each component that it applies to."""
        kind, word, parameter = binding.path
        complaint = self._check_kind(binding.scope, kind)
        if complaint:
            self.problems.add(binding.place, complaint)
            return
        try:
            targets = self._targets(kind, word, (binding.owner, ENGINE) if binding.owner else ())
        except UnknownNameError as error:
            self.problems.add(binding.place, str(error))
            return
        try:
            takers = {c: self._today(binding, c, parameter) for c in targets}
            takers = {c: name for c, name in takers.items() if name in c.params}
        except PluginError as error:
            self._unchecked.append((binding, str(error)))
            return
        if not takers:
            self._refuse(binding, targets[0], parameter)
        for component, name in takers.items():
            self._note_old_name(binding, component, normal(word))
            self._give(binding, component, name)

    def _note_old_name(self, binding: Binding, component: Component, word: str) -> None:
        """Warn about a component's old name, or refuse it once it has been removed."""
        old = component.old_names.get(word)
        if old:
            owner = f"{component.origin.distribution} {component.origin.version}"
            text = old.say(f"{component.kind} '{word}' of {owner}", component.name, component.origin.version)
            note = self.problems.add if old.is_removed(component.origin.version) else self.problems.warn
            note(binding.place, text)

    def _today(self, binding: Binding, component: Component, parameter: str) -> str:
        """Return the current name of a parameter, with a warning if it differs; a removed name is returned as it is."""
        old = component.old_params.get(parameter)
        if old is None or old.is_removed(component.origin.version):
            return parameter
        self.problems.warn(binding.place, _renamed(component, old))
        return str(old.to)

    def _refuse(self, binding: Binding, component: Component, parameter: str) -> None:
        old = component.old_params.get(parameter)
        text = _renamed(component, old) if old else _unknown_parameter(component, parameter)
        self.problems.add(binding.place, text)

    def _check_kind(self, scope: str, kind: str) -> str:
        """Return an error message about a binding's kind or scope; empty if both are valid."""
        if kind in self.schema.sections and kind not in self.registry.kinds:
            return f"'{kind}' is a section; {FORMS}"
        if kind not in self.registry.kinds:
            return f"unknown kind '{kind}'.{nearest(kind, self.registry.kinds)} Kinds: {listing(self.registry.kinds)}"
        scopes = self.schema.scopes
        if scope and scope not in scopes:
            return f"unknown scope '{scope}'.{nearest(scope, scopes)} Scopes: {listing(scopes)}"
        if scope and not self.schema.slots_of(kind, scope):
            held = {slot.kind for slot in self.schema.slots.values() if slot.scope == scope}
            return f"scope '{scope}' chooses no {kind}, only: {listing(held)}"
        return ""

    def _targets(self, kind: str, word: str, owners: tuple[str, ...]) -> list[Component]:
        """Return the components that a name refers to, preferring chosen ones to others and names to aliases.

        Raises:
            UnknownNameError: if there is none, or if it is ambiguous which one the planner would use.
        """
        name = normal(word)
        named = [c for c in self.registry.components(kind) if c.name == name]
        found = named or [c for c in self.registry.components(kind) if name in (*c.aliases, *c.old_names)]
        active = {choice.component for choice in self.chosen.values()}
        chosen = [component for component in found if component in active]
        if chosen or len(found) == 1 or (found and not self._is_free(kind)):
            return chosen or found
        return [self.registry.get(kind, word, prefer=owners)]

    def _give(self, binding: Binding, component: Component, parameter: str) -> None:
        key = (binding.scope, component, parameter)
        self.problems.check_once(binding.key, key, binding.file, binding.place)
        try:
            value = fit(binding.value, component.hints[parameter])
        except Mismatch as error:
            self.problems.add(binding.place, f"{binding.key}: {error}")
            value = None
        self._given[key] = _Given(value, binding)

    def choices(self) -> dict[str, Choice]:
        """Make the choices of all slots, and of configured components that the planner may use."""
        made = {path: self._choice(c.component, c.slot.scope, c.place) for path, c in self.chosen.items()}
        for (scope, component, _), given in self._given.items():
            if self._is_free(component.kind) and given.binding not in self._used:
                made[component.label] = self._choice(component, scope, given.binding.place)
        found = {path: choice for path, choice in made.items() if choice is not None}
        for path, choice in [*found.items()]:
            found |= self._with_inner(path, choice)
        # one that a hyperparameter chooses is configured there, and would be a second choice of the same
        inner = {choice.component for path, choice in found.items() if path not in made}
        found = {path: c for path, c in found.items() if path != c.component.label or c.component not in inner}
        self._check_distinct()
        if not self.trusted:
            self._check_programs(found)
        if not self.problems:
            self._check_instances(found)
        return found

    def _check_programs(self, choices: Mapping[str, Choice]) -> None:
        """Refuse what a file has run, before any component is made of it."""
        for choice in choices.values():
            for name in choice.component.declares.get("programs", ()):
                place = choice.origins[name]
                if choice.params[name] and place != DEFAULT and not place.startswith("--set "):
                    file = place.rpartition(":")[0]
                    self.problems.add(
                        place,
                        f"{choice.component.label}.{name} = {choice.params[name]!r} names a program to run or a server"
                        " to call, and a run folder is only read; if you trust it, add --trust to the command, or read"
                        f" it in Python with dovetail.load({file!r})",
                    )

    def _choice(self, component: Component, scope: str, place: str) -> Choice | None:
        try:
            params = defaults(component)
        except PluginError as error:
            self.problems.add(place, str(error))
            return None
        origins, files = dict.fromkeys(params, DEFAULT), dict[str, str]()
        for name in params:
            given = self._given_to(component, name, scope)
            if given:
                params[name], origins[name] = given.value, given.binding.place
                files[name] = given.binding.file
                self._used.add(given.binding)
            elif params[name] is REQUIRED:
                self.problems.add(place, f"{component.label}.{name} has no default: set it")
        made = Choice(component=component, params=params, scope=scope, origins=origins)
        return attrs.evolve(made, found=locate(made, files, self.problems))

    def _given_to(self, component: Component, name: str, scope: str) -> _Given | None:
        """Return what is bound to a parameter in a scope, or else without one."""
        return self._given.get((scope, component, name)) or self._given.get(("", component, name))

    def _with_inner(self, path: str, choice: Choice, around: tuple[Component, ...] = ()) -> dict[str, Choice]:
        """Return a choice and the choices that its hyperparameters make, recursively, by path: `train.rollout.inner`.

        `around` holds the components that it is nested in.
        """
        if not choice.component.chooses:
            return {path: choice}
        params, inner, below = dict(choice.params), dict[str, Choice](), dict[str, Choice]()
        for name, kind in choice.component.chooses.items():
            if params[name] is None:
                continue
            given = self._given_to(choice.component, name, choice.scope)
            owner = given.binding.owner if given else choice.component.origin.distribution
            place = given.binding.place if given else f"default of {choice.component.label}.{name}"
            try:
                component = self.registry.get(kind, str(params[name]), prefer=(owner, ENGINE) if owner else ())
            except UnknownNameError as error:
                self.problems.add(place, f"{choice.component.label}.{name}: {error}")
                continue
            if component in (choice.component, *around):
                self.problems.add(place, f"{choice.component.label}.{name}: it would be built inside itself")
                continue
            made = self._choice(component, choice.scope, place)
            if made is not None:
                params[name] = component.spelled
                below |= self._with_inner(f"{path}.{name}", made, (choice.component, *around))
                inner[name] = below[f"{path}.{name}"]
        return {path: attrs.evolve(choice, params=params, inner=inner)} | below

    def _check_instances(self, choices: Mapping[str, Choice]) -> None:
        """Instantiate each class, so that its validators check the parameters, alone and in combination."""
        for path, choice in choices.items():
            instance = choice.component.load()
            if inspect.isclass(instance):
                try:
                    instance = choice.bind()
                except (Exception, SystemExit) as error:
                    places = [origin for origin in dict.fromkeys(choice.origins.values()) if origin != DEFAULT]
                    message = f"{choice.component.label}{_refusal(choice.component, error)}"
                    self.problems.add(", ".join(places) or path, message)
                    continue
            if missing := lacking(choice.component, self.registry.kinds[choice.component.kind], instance):
                self.problems.add(self.chosen[path].place if path in self.chosen else path, missing)

    def _check_distinct(self) -> None:
        """Refuse two components with the same name and scope: a binding could not tell them apart."""
        holders: dict[tuple[str, str], Chosen] = {}
        for chosen in self.chosen.values():
            component = chosen.component
            other = holders.setdefault((chosen.slot.scope, component.label), chosen)
            if other.component is not component:
                self.problems.add(
                    chosen.place,
                    f"{component.qualified_name} and {other.component.qualified_name} are both configured as"
                    f" '{component.label}'; choose one of them",
                )

    def unused(self) -> tuple[Unused, ...]:
        """Return the bindings that no choice uses."""
        idle = {given.binding: component for (_, component, _), given in self._given.items()}
        for binding in self._used:
            idle.pop(binding, None)
        reasons = [(binding, self._reason(binding.scope, component)) for binding, component in idle.items()]
        return tuple(Unused(key=b.key, place=b.place, reason=reason) for b, reason in [*reasons, *self._unchecked])

    def _is_free(self, kind: str) -> bool:
        """Whether components of a kind may be used without a setting that chooses them, as the planner adds fields."""
        return self.registry.kinds[kind].exclusive or not self.schema.slots_of(kind)

    def _reason(self, scope: str, component: Component) -> str:
        said = []
        for slot in self.schema.slots_of(component.kind, scope):
            names = [repr(c.component.name) for c in self.chosen.values() if c.slot is slot]
            if any(c.component is component for c in self.chosen.values() if c.slot is slot):
                return f"{slot.scope}/{component.label} sets its own"
            said.append(f"{slot.path} is {' and '.join(names) or None}")
        return " and ".join(said)


def _refusal(component: Component, error: BaseException) -> str:
    """Return what a class says of its hyperparameters, or what it raised besides, for the end of a message."""
    if isinstance(error, ValueError | TypeError | DovetailError):
        return f": {error.args[0] if error.args else repr(error)}"
    return f" raised {first_line(error)}{raised_in(component.load(), error) or component.place}"


def _renamed(component: Component, old: Renamed) -> str:
    owner = f"{component.origin.distribution} {component.origin.version}"
    return old.say(f"{component.label}.{old.old} of {owner}", str(old.to), component.origin.version)


def _unknown_parameter(component: Component, parameter: str) -> str:
    if parameter in component.reads:
        return f"'{parameter}' is a field that {component.label} reads, not a parameter"
    hint = nearest(parameter, component.params)
    return f"{component.label} has no parameter '{parameter}'.{hint} Parameters: {listing(component.params)}"
