"""Bindings `section.field = value` to the settings, and to the components that they choose."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

import attrs

from dovetail.config.grammar import Word
from dovetail.config.parse import Binding
from dovetail.config.problems import Problems
from dovetail.config.resolved import DEFAULT, ROLES, Role
from dovetail.config.settings import ALL_SECTIONS
from dovetail.config.types import Mismatch, describe, fit, suggestion
from dovetail.errors import UnknownNameError, listing, nearest
from dovetail.registry import Component, Registry

FORMS = "write section.field = value or kind.name.parameter = value"


@attrs.frozen(kw_only=True)
class Chosen:
    """A component in a role, and the place that says so."""

    role: Role
    component: Component
    place: str


@attrs.define
class Sections:
    """What the settings come to."""

    values: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    origins: dict[str, str] = attrs.field(factory=dict)
    chosen: dict[str, Chosen] = attrs.field(factory=dict)
    """By the path of the role, with an index where it holds several."""


def resolve_sections(bindings: Iterable[Binding], registry: Registry, problems: Problems) -> Sections:
    """Check the bindings of settings, and fill in the defaults."""
    resolver = _SectionResolver(registry, problems)
    bound = {}
    for binding in bindings:
        if resolver.is_setting(binding):
            bound[binding.path] = binding
    for section, cls in ALL_SECTIONS.items():
        hints = typing.get_type_hints(cls, include_extras=True)
        resolver.found.values[section] = {}
        for field in attrs.fields(cls):
            resolver.resolve(section, field, hints[field.name], bound.get((section, field.name)))
    chosen = resolver.found.chosen
    if "eval.task" not in chosen and "train.task" in chosen:
        chosen["eval.task"] = attrs.evolve(chosen["train.task"], role=ROLES["eval.task"])
    return resolver.found


@attrs.define
class _SectionResolver:
    registry: Registry
    problems: Problems
    found: Sections = attrs.field(factory=Sections)

    def is_setting(self, binding: Binding) -> bool:
        """Tell whether a setting of that name exists."""
        section, field = binding.path[0], binding.path[-1]
        if section not in ALL_SECTIONS:
            self.problems.add(binding.place, self._unknown_section(section))
        elif binding.scope:
            self.problems.add(binding.place, f"'{binding.key}': a setting has no scope; write {section}.{field}")
        elif field not in attrs.fields_dict(ALL_SECTIONS[section]):
            self.problems.add(binding.place, _unknown_field(section, field))
        else:
            self.problems.check_once(binding.key, binding.path, binding.file, binding.place)
            return True
        return False

    def _unknown_section(self, section: str) -> str:
        if section in self.registry.kinds:
            roles = [role.path for role in ROLES.values() if role.kind == section]
            choose = f"{' or '.join(roles)} = NAME to choose one, " if roles else ""
            return f"'{section}' is a kind: write {choose}{section}.NAME.PARAMETER = value to set a parameter"
        known = [*ALL_SECTIONS, *self.registry.kinds]
        return f"unknown section '{section}'.{nearest(section, known)} Sections: {listing(ALL_SECTIONS)}; {FORMS}"

    def resolve(self, section: str, field: attrs.Attribute[Any], hint: Any, binding: Binding | None) -> None:
        """Fit one setting's value, or its default, and find the components that it names."""
        path = f"{section}.{field.name}"
        if binding is None and field.default is attrs.NOTHING:
            self.problems.add(path, "it has no default, set it")
            return
        place = binding.place if binding else f"default of {path}"
        value = binding.value if binding else field.default
        try:
            value = self._names(ROLES[path], value, hint, place) if path in ROLES else fit(value, hint)
        except (Mismatch, UnknownNameError) as error:
            self.problems.add(place, f"{path}: {error}" if isinstance(error, Mismatch) else str(error))
        self.found.values[section][field.name] = value
        self.found.origins[path] = binding.place if binding else DEFAULT

    def _names(self, role: Role, value: Any, hint: Any, place: str) -> Any:
        """Return the names that a setting holds as the registry spells them, and note what they choose."""
        words = value if role.many and isinstance(value, list | tuple) else (value,)
        texts = [word.text if isinstance(word, Word) else word for word in words]
        if texts == [None] and role.many:
            return ()
        if texts == [None] and type(None) in typing.get_args(hint):
            return None
        names: dict[Component, str] = {}
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise Mismatch(f"expected {describe(hint)}, got {value!r}.")
            component = self._get(role, text, hint | None if role.many else hint)
            notice = self.registry.notice(role.kind, text)
            if notice:
                self.problems.warn(place, notice)
            path = f"{role.path}[{index}]" if role.many else role.path
            if component in names:
                raise Mismatch(f"'{component.name}' is named twice.")
            names[component] = component.qualified_name if "/" in text else component.spelled
            self.found.chosen[path] = Chosen(role=role, component=component, place=place)
        return tuple(names.values()) if role.many else next(iter(names.values()))

    def _get(self, role: Role, text: str, hint: Any) -> Component:
        try:
            return self.registry.get(role.kind, text)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error}{suggestion(text, hint)}") from None


def _unknown_field(section: str, field: str) -> str:
    fields = attrs.fields_dict(ALL_SECTIONS[section])
    hint = nearest(field, fields)
    elsewhere = [name for name, cls in ALL_SECTIONS.items() if field in attrs.fields_dict(cls)]
    if elsewhere:
        hint = f" Did you mean {' or '.join(f'{name}.{field}' for name in elsewhere)}?"
    return f"{section} has no field '{field}'.{hint} Fields: {listing(fields, limit=60)}"
