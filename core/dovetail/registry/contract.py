"""Check that a component has the methods that the protocol of its kind requires, and reads what its kind offers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection
from typing import Any, Final

from dovetail.errors import closest, listing, nearest
from dovetail.kinds.kind import Kind
from dovetail.registry.component import Component

ALIKE: Final = 0.8
"""From what similarity on a name counts as a misspelling: a class may well have methods of its own."""


def asked_of(component: Component, kind: Kind) -> dict[str, Any]:
    """Return the methods and properties that a component must have, by name; none if its signature is the contract."""
    contract = kind.load_protocol()
    # Where components read fields, the protocol is only for those with state.
    applies = kind.reads != "fields" or "state" in component.reads
    if contract is None or not applies:
        return {}
    if "__call__" in methods_of(contract) and not inspect.isclass(component.load()):
        return {}  # a function is all that is called
    # `__call__` is the component's own signature: it reads as many fields as it needs.
    return {name: method for name, method in methods_of(contract).items() if name != "__call__"}


@functools.lru_cache(maxsize=256)
def methods_of(contract: type[Any]) -> dict[str, Any]:
    """Return the public methods and properties of a protocol, and `__call__`, by name."""
    public = {name: value for name, value in vars(contract).items() if name == "__call__" or not name.startswith("_")}
    return {name: value for name, value in public.items() if inspect.isfunction(value) or isinstance(value, property)}


def lacking(component: Component, kind: Kind, instance: Any) -> str:
    """Return an error message that names the required methods an instance lacks; empty if it has them all.

    Likewise if one cannot be called with the parameters of its protocol, if it reads what its kind does not offer, or
    if it has a method that looks like a misspelling of an optional one.
    """
    if stray := [read for read in component.reads if kind.offers and read not in kind.offers]:
        there = f"there are {', '.join(kind.offers)}.{nearest(stray[0], kind.offers)}"
        return str(component.wrong(f"reads '{stray[0]}'; {there}"))
    asked = asked_of(component, kind)
    missing = [name for name in asked if not _has(instance, name)]
    if not missing:
        strange = next((name for name, method in asked.items() if not _takes(instance, name, method)), None)
        if strange is None:
            return _misspelt(component, kind, instance, asked)
        own = arguments(getattr(type(instance), strange))
        return str(component.wrong(f"has {strange}{own}, and it is called with {arguments(asked[strange])}", strange))
    wanted = [f"{name}{arguments(asked[name])}" for name in missing]
    there = f"which kind '{kind.name}' needs.{nearest(missing[0], _own(instance, asked))}"
    return f"{component.label} has no {' or '.join(wanted)}, {there.removesuffix('.')}{component.place}"


def _misspelt(component: Component, kind: Kind, instance: Any, asked: Collection[str]) -> str:
    """Return an error message about a method that nothing calls, and whose name is nearly one that the kind calls."""
    absent = [name for name in kind.optional if not _has(instance, name)]
    for name in _own(instance, (*asked, *kind.optional, *component.params)):
        if meant := closest(name, absent, ALIKE):
            how = f"has '{name}', which nothing calls. Did you mean '{meant}'? Kind '{kind.name}' may have"
            return str(component.wrong(f"{how} {listing(kind.optional)}; begin names of your own with '_'", name))
    return ""


def _own(instance: Any, known: Collection[str]) -> list[str]:
    """Return the public names of an instance's class that are not known."""
    return [name for name in dir(type(instance)) if not name.startswith("_") and name not in known]


def arguments(function: Any) -> str:
    """Return the parameters of a method as text, `(state, kl)`; empty for a property."""
    if not inspect.isfunction(function):
        return ""
    return f"({', '.join(p for p in inspect.signature(function).parameters if p != 'self')})"


def _has(instance: Any, name: str) -> bool:
    """Whether an instance has an attribute, without evaluating a property."""
    # as `inspect.getattr_static` would tell, in a tenth of its time
    return any(name in vars(cls) for cls in type(instance).__mro__) or name in getattr(instance, "__dict__", ())


def _takes(instance: Any, name: str, method: Any) -> bool:
    """Whether a method that is an ordinary one can be called with what its protocol always passes."""
    own = inspect.getattr_static(instance, name)
    if not (inspect.isfunction(method) and inspect.isfunction(own)):
        return True
    return _accepts(own, method, getattr(instance, name) is not own)


@functools.lru_cache(maxsize=1024)  # a config is read thousands of times by the trials of a sweep
def _accepts(own: Any, method: Any, is_bound: bool) -> bool:
    itself, *passed = inspect.signature(method).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in passed):
        return True  # the planner compares such a method with the component's own `__call__`
    passed = [each for each in passed if each.default is each.empty]
    by_name = {each.name: None for each in passed if each.kind is each.KEYWORD_ONLY}
    first = [itself] if is_bound else []
    try:
        inspect.signature(own).bind(*first, *passed[: len(passed) - len(by_name)], **by_name)
    except TypeError:
        return False
    return True
