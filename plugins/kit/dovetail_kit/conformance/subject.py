"""The object that a check examines: a component with its hyperparameters, and cached results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from dovetail.errors import DovetailError
from dovetail.ranges import bounds, plain, union_of
from dovetail.registry import REQUIRED, Component, current, has_float
from dovetail_kit.conformance.check import Inapplicable

MOST = 512
"""The largest number of steps or groups that is waited for."""
GUESSES = (8, 1, 0.5)
"""Tried in turn for a number that has no default."""


@attrs.define(eq=False)
class Subject:
    """A component under test.

    Attributes:
        component: the component.
        given: hyperparameters that replace its defaults.
        memory: results that checks share, by keys of their own.
        raised: what it raised, with the first check that saw it.
        crowd: the subjects that are checked together with it, and results that are computed once for all of them.
    """

    component: Component
    given: Mapping[str, Any] = attrs.field(factory=dict)
    memory: dict[Any, Any] = attrs.field(factory=dict, repr=False)
    raised: dict[str, str] = attrs.field(factory=dict, repr=False)
    crowd: dict[Any, Any] = attrs.field(factory=dict, repr=False)

    @property
    def declared(self) -> Mapping[str, Any]:
        """The claims of the component."""
        return self.component.declares

    @property
    def params(self) -> dict[str, Any]:
        """All hyperparameters: as given, as declared in `settings`, the default, or otherwise some number.

        Raises:
            Inapplicable: if one has no default and is not a number.
        """
        values = dict(self.component.params) | dict(self.declared.get("settings", {})) | dict(self.given)
        return {name: self._guess(name) if value is REQUIRED else value for name, value in values.items()}

    @property
    def floats(self) -> dict[str, Any]:
        """The hyperparameters that the engine traces, as the float32 scalars that it passes."""
        import numpy as np

        return {name: np.float32(value) for name, value in self.params.items() if self._is_traced(name, value)}

    def bind(self, **params: Any) -> Any:
        """Return the function or the instance with its hyperparameters, some of them replaced.

        Raises:
            Inapplicable: if the component cannot be built here, because a library or a file is missing.
        """
        try:
            chosen = {name: kind for name, kind in self.component.chooses.items() if self.params[name] is not None}
            inner = {name: current().get(kind, str(self.params[name])) for name, kind in chosen.items()}
            built = {name: Subject(component).bind() for name, component in inner.items()}
            return self.component.bind(**(self.params | built | params))
        except (DovetailError, ImportError) as error:
            raise Inapplicable(f"it cannot be built here: {error}") from error

    def once(self, key: Any, make: Any) -> Any:
        """Return what `make()` returned the first time it was called for this key."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def forget(self) -> None:
        """Free all cached results."""
        self.memory.clear()

    def _is_traced(self, name: str, value: Any) -> bool:
        number = isinstance(value, float | int) and not isinstance(value, bool)
        return number and name not in self.component.static and has_float(self.component.hints[name])

    def _guess(self, name: str) -> Any:
        hint = self.component.hints[name]
        numbers = {int, float} & {plain(option) for option in union_of(plain(hint))}
        for guess in GUESSES if numbers else ():
            if all(bound.holds(guess) for bound in bounds(hint)) and (float in numbers or isinstance(guess, int)):
                return guess
        raise Inapplicable(
            f"hyperparameter '{name}' has no default: declare a value to test with,"
            f" dovetail.declares(settings={{'{name}': ...}}), or return one from the hook pytest_dovetail_settings in a"
            " conftest.py"
        )


def allows(component: Component, name: str, value: float) -> bool:
    """Tell whether the annotation of a hyperparameter allows a value."""
    return all(bound.holds(value) for bound in bounds(component.hints[name]))


def longest(subject: Subject) -> int:
    """Return the largest whole number that it has by default, or declares, and that may be one of steps or groups to
    wait for; the same whatever number is tried.
    """
    values = {**subject.component.params, **subject.declared.get("settings", {})}.values()
    return max((value for value in values if isinstance(value, int) and value <= MOST), default=0)


def said_of(component: Component, name: str) -> str:
    """Return what the docstring's line on a parameter says of it; empty if there is none."""
    line = re.search(rf"^\s*{re.escape(name)}:([^\n]*)", component.doc, re.MULTILINE)
    return line[1] if line else ""
