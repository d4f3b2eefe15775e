"""A broken component, and the name of the check that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from dovetail.registry import Component, Origin

MUTANTS: list[Mutant] = []
CONTROLS: list[tuple[str, Any]] = []
"""Correct components, unusual ones among them, by kind."""


@attrs.frozen(kw_only=True)
class Mutant:
    kind: str
    check: str
    target: Callable[..., Any]
    slow: bool
    raises: str

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.target.__name__}"

    @property
    def component(self) -> Component:
        origin = Origin("mutants", "0", self.target.__module__)
        return Component(kind=self.kind, name=self.target.__name__.lower(), target=self.target, origin=origin)


def caught_by(kind: str, check: str, *, slow: bool = False, raises: str = "") -> Callable[[Any], Any]:
    """Declare which check must catch the following component, and which error the component raises in it, if any."""

    def note(target: Any) -> Any:
        MUTANTS.append(Mutant(kind=kind, check=check, target=target, slow=slow, raises=raises))
        return target

    return note


def right(kind: str) -> Callable[[Any], Any]:
    """Declare that every check must pass the following component."""

    def note(target: Any) -> Any:
        CONTROLS.append((kind, target))
        return target

    return note
