"""Resolve bindings `section.field = value` into settings, and into the components that they choose."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

import attrs

from dovetail.config.grammar import Word
from dovetail.config.parse import Binding
from dovetail.config.problems import Problems
from dovetail.config.resolved import DEFAULT
from dovetail.config.schema import MESH, ROLES, Schema, Slot, fields_of, is_taken
from dovetail.config.settings import RoleModel
from dovetail.config.types import Mismatch, describe, fit, suggestion
from dovetail.errors import UnknownNameError, listing, nearest
from dovetail.registry import Component, Registry, plugin_manager
from dovetail.registry.calls import ask_all
from dovetail.registry.compatibility import ENGINE

FORMS = "write section.field = value or kind.name.parameter = value"


@attrs.frozen(kw_only=True)
class Chosen:
    """A component chosen by a slot, and the location of the binding that chooses it."""

    slot: Slot
    component: Component
    place: str


@attrs.define
class Sections:
    """The resolved settings: their values and origins, and the components that they choose."""

    values: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    origins: dict[str, str] = attrs.field(factory=dict)
    chosen: dict[str, Chosen] = attrs.field(factory=dict)
    """By the path of the slot, with an index if it holds several."""


def resolve_sections(bindings: Iterable[Binding], schema: Schema, registry: Registry, problems: Problems) -> Sections:
    """Check the bindings of settings, record errors as problems, and fill in the defaults."""
    resolver = _SectionResolver(schema, registry, problems)
    bound = {}
    for binding in bindings:
        if resolver.is_setting(binding):
            bound[section_of(binding), binding.path[-1]] = binding
    for section, cls in schema.sections.items():
        resolver.found.values[section] = {}
        for name, (hint, field) in fields_of(cls).items():
            resolver.resolve(section, field, hint, bound.get((section, name)))
    chosen = resolver.found.chosen
    if "eval.task" not in chosen and "train.task" in chosen:
        chosen["eval.task"] = attrs.evolve(chosen["train.task"], slot=schema.slots["eval.task"])
    return resolver.found


def section_of(binding: Binding) -> str:
    """Return the section of a setting: `reference/mesh` is one of its own."""
    scoped = binding.scope and binding.path[0] == MESH
    return f"{binding.scope}/{MESH}" if scoped else binding.path[0]


@attrs.define
class _SectionResolver:
    schema: Schema
    registry: Registry
    problems: Problems
    found: Sections = attrs.field(factory=Sections)

    def is_setting(self, binding: Binding) -> bool:
        """Tell whether the setting exists and may be bound; otherwise record a problem."""
        section, field = section_of(binding), binding.path[-1]
        if section not in self.schema.sections:
            unknown = self._unknown_place(binding) if binding.scope else self._unknown_section(section, field)
            self.problems.add(binding.place, unknown)
        elif binding.scope and section == binding.path[0]:
            self.problems.add(binding.place, f"'{binding.key}': a setting has no scope; write {section}.{field}")
        elif field not in attrs.fields_dict(self.schema.sections[section]):
            self.problems.add(binding.place, self._unknown_field(section, field))
        else:
            self.problems.check_once(binding.key, (section, field), binding.file, binding.place)
            return True
        return False

    def _unknown_place(self, binding: Binding) -> str:
        if section_of(binding) == binding.path[0]:
            return self._unknown_section(*binding.path)
        scope, places = binding.scope, self.schema.places
        hint = nearest(scope, places)
        if not hint and scope.isidentifier() and not is_taken(scope, self.registry):
            hint = f" {ROLES}.{scope} = 'frozen' would open the model role '{scope}'."
        return f"'{binding.key}': no role '{scope}' has devices.{hint} Roles: {listing(places)}"

    def _unknown_section(self, section: str, field: str) -> str:
        if section in self.registry.kinds:
            slots = [slot.path for slot in self.schema.slots_of(section)]
            choose = f"{' or '.join(slots)} = NAME to choose one, " if slots else ""
            return f"'{section}' is a kind: write {choose}{section}.NAME.PARAMETER = value to set a parameter"
        known = [*self.schema.sections, *self.registry.kinds]
        hint = _meant(section, field) or nearest(section, known) or self._of_component(section, field)
        if not hint and field in attrs.fields_dict(RoleModel) and not is_taken(section, self.registry):
            hint = f" {ROLES}.{section} = 'frozen' would open the model role '{section}'."
        return f"unknown section '{section}'.{hint} Sections: {listing(self.schema.sections)}; {FORMS}"

    def _of_component(self, name: str, field: str) -> str:
        """Return a hint if a component has this name."""
        kinds = [kind for kind in self.registry.kinds if name in self.registry.names(kind)]
        return f" Did you mean {kinds[0]}.{name}.{field}?" if kinds else ""

    def resolve(self, section: str, field: attrs.Attribute[Any], hint: Any, binding: Binding | None) -> None:
        """Check the value of one setting, or its default, and look up the components that it names."""
        path = f"{section}.{field.name}"
        if binding is None and field.default is attrs.NOTHING:
            self.problems.add(path, "it has no default: set it")
            return
        place = binding.place if binding else f"default of {path}"
        value = binding.value if binding else field.default
        slots = self.schema.slots
        try:
            owners = self._owners(slots.get(path), binding)
            value = self._names(slots[path], value, hint, place, owners) if path in slots else fit(value, hint)
        except (Mismatch, UnknownNameError) as error:
            self.problems.add(place, f"{path}: {error}" if isinstance(error, Mismatch) else str(error))
        self.found.values[section][field.name] = value
        self.found.origins[path] = binding.place if binding else DEFAULT

    def _owners(self, slot: Slot | None, binding: Binding | None) -> tuple[str, ...]:
        """Return the distributions that own bare names in a value, in order of preference; none in the user's own text.

        In a default, or in a file that a plugin ships, a bare name is therefore never ambiguous.
        """
        if binding is not None:
            return (binding.owner, ENGINE) if binding.owner else ()
        if slot is None:
            return ()
        kind, section = self.registry.kinds[slot.kind], self.registry.sections.get(slot.section)
        origins = [kind.origin if kind.path == slot.path else None, section.origin if section else None]
        return (*(origin.distribution for origin in origins if origin), ENGINE)

    def _names(self, slot: Slot, value: Any, hint: Any, place: str, owners: tuple[str, ...]) -> Any:
        """Return the names in a setting in the registry's spelling, and record the components that they choose."""
        words = value if slot.many and isinstance(value, list | tuple) else (value,)
        texts = [word.text if isinstance(word, Word) else word for word in words]
        if texts == [None] and (slot.many or type(None) in typing.get_args(hint)):
            return () if slot.many else None
        names: dict[Component, str] = {}
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise Mismatch(f"expected {describe(hint)}, got {value!r}.")
            component = self._get(slot, text, hint | None if slot.many else hint, owners)
            if notice := self.registry.notice(slot.kind, text):
                self.problems.warn(place, notice)
            path = f"{slot.path}[{index}]" if slot.many else slot.path
            if component in names:
                raise Mismatch(f"'{component.name}' is named twice.")
            names[component] = component.qualified_name if "/" in text else component.spelled
            self.found.chosen[path] = Chosen(slot=slot, component=component, place=place)
        return tuple(names.values()) if slot.many else next(iter(names.values()))

    def _get(self, slot: Slot, text: str, hint: Any, owners: tuple[str, ...]) -> Component:
        try:
            return self.registry.get(slot.kind, text, prefer=owners)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error}{suggestion(text, hint)}") from None

    def _unknown_field(self, section: str, field: str) -> str:
        if section == ROLES and field.isidentifier():
            return f"'{field}' cannot be the name of a model role: it has a meaning already; take another name"
        if section == ROLES:
            return f"'{field}' is not a name for a model role; use letters, digits and '_'"
        fields = attrs.fields_dict(self.schema.sections[section])
        elsewhere = [f"{name}.{field}" for name, cls in self.schema.sections.items() if field in attrs.fields_dict(cls)]
        hint = f" Did you mean {' or '.join(elsewhere)}?" if elsewhere else _meant(section, field, field)
        search = f"`dovetail search {field}` looks for it, also by its name in other libraries"
        hint = hint or nearest(field, fields) or f" {search}. Settings: {listing(fields, limit=60)}"
        return f"{section} has no setting '{field}'.{hint}"


def _meant(section: str, field: str, *also: str) -> str:
    """Return a hint if a plugin knows settings by these words."""
    words = {f"{section}.{field}", f"{section}_{field}", *also}
    asked = ask_all(plugin_manager(), "dovetail_synonyms", lambda _: dict[str, str]())
    paths = [path for _, known in asked for path, others in known.items() if words & {*others.split()}]
    return f" Did you mean {' or '.join(paths)}?" if paths else ""
