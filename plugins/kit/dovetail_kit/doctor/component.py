"""Examine the signature and the docstring of a component."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.config.resolved import defaults
from dovetail.errors import DovetailError, listing
from dovetail.registry import Component, Registry
from dovetail_kit.doctor.finding import Finding
from dovetail_kit.doctor.methods import examine_methods


def examine_component(component: Component, registry: Registry) -> Iterator[Finding]:
    """Yield errors in a component, and suggestions."""
    try:
        component.load()
        defaults(component)
    except DovetailError as error:
        yield Finding("error", component.label, str(error))
        return
    yield from _shared_names(component, registry)
    yield from _conformance(component)
    yield from examine_methods(component, registry)
    yield from _old_params(component)


def _shared_names(component: Component, registry: Registry) -> Iterator[Finding]:
    words = (component.name, *component.aliases)
    for other in registry.components(component.kind):
        shared = [word for word in words if word in (other.name, *other.aliases)]
        if other is not component and shared:
            yield Finding(
                "warning",
                component.label,
                f"{other.origin.distribution} has the {component.kind} '{shared[0]}' too, so a config of yours must say"
                f" which: '{component.origin.distribution}/{shared[0]}' or '{other.origin.distribution}/{shared[0]}'",
            )


def _conformance(component: Component) -> Iterator[Finding]:
    """Carry out the conformance checks that call nothing, so that their faults are seen before the first pytest."""
    from dovetail_kit.conformance.check import applicable
    from dovetail_kit.conformance.subject import Subject
    from dovetail_kit.conformance.verdict import judge

    for check in applicable(component):
        if check.doctor is not None:
            verdict = judge(check, Subject(component))
            if verdict.outcome == "failed":
                text = f"{verdict.seen} (check '{check.name}'){component.place}"
                yield Finding(check.doctor, component.label, text)


def _old_params(component: Component) -> Iterator[Finding]:
    for old in component.old_params.values():
        if old.to not in component.params or old.old in component.params:
            yield Finding(
                "error",
                component.label,
                f"it is registered with '{old.old}' renamed to '{old.to}', but its parameters are"
                f" {listing(component.params)}{component.place}",
            )
