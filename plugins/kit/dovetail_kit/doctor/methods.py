"""Compare a class with the protocol of its kind."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from dovetail.registry import Component, Registry, place_of
from dovetail.registry.contract import arguments, asked_of
from dovetail_kit.doctor.finding import Finding


def examine_methods(component: Component, registry: Registry) -> Iterator[Finding]:
    """Yield the methods of its protocol that a class lacks, or that cannot be called as the engine calls them."""
    target = component.load()
    for name, wanted in asked_of(component, registry.kinds[component.kind]).items():
        method = inspect.getattr_static(target, name, None)
        if method is None:
            text = f"it has no '{name}'; kind '{component.kind}' wants {name}{arguments(wanted)}{component.place}"
            yield Finding("error", component.label, text)
        elif inspect.isfunction(method) and inspect.isfunction(wanted) and not _takes(method, wanted):
            yield Finding(
                "error",
                component.label,
                f"its {name}{arguments(method)} cannot be called as kind '{component.kind}' calls it,"
                f" {name}{arguments(wanted)}{place_of(method)}",
            )


def _takes(method: Any, wanted: Any) -> bool:
    """Whether a method can be called with the positional and keyword-only parameters that the protocol has."""
    parameters = inspect.signature(wanted).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True  # it takes what the component's own `__call__` does, which the planner compares
    positional = [None for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    try:
        inspect.signature(method).bind(*positional, **named)
    except TypeError:
        return False
    return True
