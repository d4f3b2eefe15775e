"""Macros: `lr = 1e-3` defines one, `%lr` stands for its value."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dovetail.config.grammar import Macro
from dovetail.config.parse import Binding
from dovetail.config.problems import Problems
from dovetail.errors import listing, nearest


def expand(bindings: Sequence[Binding], problems: Problems, sections: Mapping[str, type[Any]] = {}) -> list[Binding]:
    """Return the bindings that do not define macros, with macros replaced by their values.

    As in gin, the last definition of a macro applies everywhere, even to uses before it. Unknown, unused and recursive
    macros are recorded as problems. The location of a binding that uses a macro includes the macro's.

    Args:
        bindings: all bindings of a configuration.
        problems: receives the problems.
        sections: the settings' classes by section, for suggestions.
    """
    macros = {}
    for binding in bindings:
        if len(binding.path) == 1:
            name = binding.path[0]
            problems.check_once(f"macro '{name}'", ("macro", name), binding.file, binding.place)
            if binding.scope:
                problems.add(binding.place, f"'{binding.key}': a macro has no scope")
            macros[name] = binding
    expander = _Expander(macros, problems)
    expanded = list(expander.bindings(binding for binding in bindings if len(binding.path) > 1))
    for name, binding in macros.items():
        if name not in expander.used:
            problems.add(binding.place, f"macro '{name}' is used nowhere.{_meant(name, sections)}")
    return expanded


def _meant(name: str, classes: Mapping[str, type[Any]]) -> str:
    """Suggest the settings that an unused macro may have been meant for, if it has their name."""
    sections = [section for section, cls in classes.items() if name in attrs.fields_dict(cls)]
    if not sections:
        return f" A setting is written SECTION.NAME; `dovetail search {name}` looks for one."
    return f" Did you mean {' or '.join(f'{section}.{name}' for section in sections)}?"


DEPTH, USES = 100, 1000
"""How deeply macros may be nested, and how many one value may use: without a limit, 40 lines can make 2^40 values."""


class _Undefined(Exception):
    """A macro has no value; the problem has already been recorded."""


@attrs.define
class _Expander:
    macros: dict[str, Binding]
    problems: Problems
    used: set[str] = attrs.field(factory=set)

    def bindings(self, bindings: Iterable[Binding]) -> Iterator[Binding]:
        """Yield the bindings with macros replaced, without those whose macros have no value."""
        for binding in bindings:
            via: list[str] = []
            try:
                value = self._value(binding.value, binding.place, (), via)
            except _Undefined:
                continue
            yield attrs.evolve(binding, value=value, place=" ".join([binding.place, *via]))

    def _value(self, value: Any, place: str, trail: tuple[str, ...], via: list[str]) -> Any:
        """Replace the macros in a value at `place`; `trail` holds the enclosing macros, `via` collects all of them."""
        if isinstance(value, Macro):
            return self._macro(value.name, place, trail, via)
        if isinstance(value, list | tuple):
            return type(value)(self._value(item, place, trail, via) for item in value)
        if isinstance(value, dict):
            keys = [self._value(key, place, trail, via) for key in value]
            if not all(isinstance(key, Hashable) for key in keys):
                self.problems.add(place, "a list or dict cannot be a key of a dict")
                raise _Undefined
            return dict(zip(keys, (self._value(v, place, trail, via) for v in value.values()), strict=True))
        return value

    def _macro(self, name: str, place: str, trail: tuple[str, ...], via: list[str]) -> Any:
        self.used.add(name)
        if name not in self.macros:
            known = listing(self.macros)
            self.problems.add(place, f"unknown macro '%{name}'.{nearest(name, self.macros)} Macros: {known}")
            raise _Undefined
        if name in trail:
            self.problems.add(place, f"macro cycle: {' -> '.join(f'%{step}' for step in (*trail, name))}")
            raise _Undefined
        if len(trail) >= DEPTH or len(via) >= USES:
            self.problems.add(place, f"macros are nested {DEPTH} deep, or a value uses more than {USES} of them")
            raise _Undefined
        found = self.macros[name]
        via.append(f"(%{name} at {found.place})")
        return self._value(found.value, found.place, (*trail, name), via)
