"""Look at one component: what a signature and a docstring say, or fail to say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from dovetail.config.resolved import defaults
from dovetail.errors import DovetailError, listing, nearest
from dovetail.kinds import FIELDS
from dovetail.kinds.fields import HIDDEN, LOGITS
from dovetail.plan.roles import REFERENCE, logits_of, spellings
from dovetail.registry import Component, Registry, place_of
from dovetail_kit.finding import Finding


def look_at_component(component: Component, registry: Registry) -> Iterator[Finding]:
    """Yield what is wrong with a component, or could be better."""
    label = component.label
    try:
        target = component.load()
        defaults(component)
    except DovetailError as error:
        yield Finding("error", label, str(error))
        return
    yield from _owners(component, registry)
    if registry.kinds[component.kind].reads == "fields":
        yield from _fields(component, registry)
    yield from _methods(component, target, registry)
    yield from _old_params(component)
    place = component.place
    if not component.doc:
        yield Finding(
            "warning",
            label,
            f"it has no docstring, which is what `dovetail describe` prints; say its formula and its parameters{place}",
        )
        return
    silent = [name for name in component.params if not re.search(rf"\b{re.escape(name)}\b", component.doc)]
    if silent and not re.search(r"as (for|in) `\w+`", component.doc):
        yield Finding("warning", label, f"its docstring says nothing of {', '.join(silent)}{place}")
    bare = [name for name, hint in component.hints.items() if hint is Any]
    if bare:
        yield Finding(
            "warning",
            label,
            f"no annotation of {', '.join(bare)}: a config could give any value, and a float is not traced{place}",
        )


def _owners(component: Component, registry: Registry) -> Iterator[Finding]:
    words = (component.name, *component.aliases)
    for other in registry.components(component.kind):
        shared = [word for word in words if word in (other.name, *other.aliases)]
        if other is not component and shared:
            yield Finding(
                "warning",
                component.label,
                f"{other.origin.distribution} has a {component.kind} '{shared[0]}' too, so every config must say whose:"
                f" '{component.origin.distribution}/{shared[0]}' or '{other.origin.distribution}/{shared[0]}'",
            )


def _old_params(component: Component) -> Iterator[Finding]:
    for old in component.old_params.values():
        if old.to not in component.params or old.old in component.params:
            yield Finding(
                "error",
                component.label,
                f"it is registered with '{old.old}' renamed to '{old.to}', and its parameters are"
                f" {listing(component.params)}{component.place}",
            )


def _fields(component: Component, registry: Registry) -> Iterator[Finding]:
    derived = registry.names("field")
    known = {*FIELDS, *derived, *(name for each in derived for name in spellings(each, (REFERENCE,)))}
    known |= {field for kind in registry.kinds.values() for field in kind.writes}
    known |= {LOGITS, HIDDEN, logits_of(REFERENCE)} if component.kind == "field" else set()
    for field in component.reads:
        if field not in known:
            yield Finding(
                "error",
                component.label,
                f"it reads the field '{field}', which nobody provides.{nearest(field, known)} Known:"
                f" {listing(known, 40)}; what is a hyperparameter stands behind '*'{component.place}",
            )


def _methods(component: Component, target: Any, registry: Registry) -> Iterator[Finding]:
    """Compare a class with the protocol of its kind."""
    contract = registry.kinds[component.kind].load_protocol()
    if contract is None or not inspect.isclass(target) or (component.kind == "advantage" and not _remembers(component)):
        return
    for name, wanted in contract_methods(contract).items():
        method = inspect.getattr_static(target, name, None)
        if method is None:
            yield Finding(
                "error",
                component.label,
                f"it has no '{name}'; kind '{component.kind}' wants {name}{_arguments(wanted)}{component.place}",
            )
        elif inspect.isfunction(method) and inspect.isfunction(wanted) and not _takes(method, wanted):
            yield Finding(
                "error",
                component.label,
                f"its {name}{_arguments(method)} cannot be called as kind '{component.kind}' is,"
                f" {name}{_arguments(wanted)}{place_of(method)}",
            )


def _remembers(component: Component) -> bool:
    """Whether an estimator is one of those that the protocol is about; the others' contract is their signature."""
    return "state" in component.reads


def contract_methods(contract: type[Any]) -> dict[str, Any]:
    """Return what a protocol asks for, methods and properties."""
    found = {name: value for name, value in vars(contract).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if inspect.isfunction(value) or isinstance(value, property)}


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
