"""Compare a class with the protocol of its kind."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from dovetail.registry import Component, Registry, place_of
from dovetail_kit.doctor.finding import Finding


def examine_methods(component: Component, registry: Registry) -> Iterator[Finding]:
    """Yield the methods of its protocol that a class lacks, or that cannot be called as the engine calls them."""
    target = component.load()
    contract = registry.kinds[component.kind].load_protocol()
    if contract is None or not inspect.isclass(target) or not _has_a_protocol(component):
        return
    for name, wanted in contract_methods(contract).items():
        if name == "__call__":  # reads by the names of its parameters, as many as it needs
            continue
        method = inspect.getattr_static(target, name, None)
        if method is None:
            text = f"it has no '{name}'; kind '{component.kind}' wants {name}{_arguments(wanted)}{component.place}"
            yield Finding("error", component.label, text)
        elif inspect.isfunction(method) and inspect.isfunction(wanted) and not _takes(method, wanted):
            yield Finding(
                "error",
                component.label,
                f"its {name}{_arguments(method)} cannot be called as kind '{component.kind}' calls it,"
                f" {name}{_arguments(wanted)}{place_of(method)}",
            )


def _has_a_protocol(component: Component) -> bool:
    """Whether more than a signature is asked of it: of estimators, only those that keep a state have methods."""
    return component.kind != "advantage" or "state" in component.reads


def contract_methods(contract: type[Any]) -> dict[str, Any]:
    """Return what a protocol asks for, methods and properties, by name."""
    public = {name: value for name, value in vars(contract).items() if name == "__call__" or not name.startswith("_")}
    return {name: value for name, value in public.items() if inspect.isfunction(value) or isinstance(value, property)}


def _arguments(function: Any) -> str:
    if not inspect.isfunction(function):
        return ""
    return f"({', '.join(p for p in inspect.signature(function).parameters if p != 'self')})"


def _takes(method: Any, wanted: Any) -> bool:
    """Whether a method can be called with the positional and keyword-only parameters that the protocol has."""
    parameters = inspect.signature(wanted).parameters.values()
    positional = [None for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    try:
        inspect.signature(method).bind(*positional, **named)
    except TypeError:
        return False
    return True
