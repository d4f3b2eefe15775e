"""Ranges of hyperparameters, written in their annotations.

    epsilon_high: Annotated[float, Gt(0)] = 4.0
    lam: Annotated[float, Interval(ge=0, le=1)] = 0.95
    clip: Annotated[float, Gt(1)] | None = None

The bounds are those of the library `annotated-types`. They are checked when a config is read, before any number is
traced, and shown by `dovetail describe`. Calling a function directly checks nothing. A class can have them checked
whenever it is instantiated: `attrs.field(default=0.1, validator=in_range)`.
"""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Le, Lt

from dovetail.errors import ConfigError

_SIGNS = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}
_TURNED = {">=": "<=", ">": "<"}
_HOLDS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@attrs.frozen
class Bound:
    """One end of a range, as in `>= 0`."""

    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        """Tell whether a number satisfies the bound; nan never does."""
        return _HOLDS[self.sign](value, self.limit)


def bounds(hint: Any) -> tuple[Bound, ...]:
    """Return the bounds in an annotation, at its top level or in an option of a union.

    >>> bounds(typing.Annotated[float, Ge(0), Lt(1)] | None)
    (Bound(sign='>=', limit=0), Bound(sign='<', limit=1))

    Raises:
        TypeError: on a constraint that would not be checked: of another kind, or on a type that is not a number.
    """
    try:
        hash(hint)
    except TypeError:  # it is annotated with something else that has no hash
        return _bounds.__wrapped__(hint)
    return _bounds(hint)


@functools.lru_cache(maxsize=1024)  # reading a config asks for those of all its settings and parameters, several times
def _bounds(hint: Any) -> tuple[Bound, ...]:
    found = [bound for option in union_of(hint) if option is not hint for bound in bounds(option)]
    for mark in _constraints(hint):
        if type(mark) not in _SIGNS:
            raise TypeError(f"{mark}; a range is made of Ge, Gt, Le, Lt and Interval")
        if not set(union_of(plain(hint))) <= {int, float, types.NoneType}:
            raise TypeError(f"{mark} on {plain(hint)}, which is not a number")
        sign = _SIGNS[type(mark)]
        found.append(Bound(sign, getattr(mark, type(mark).__name__.lower())))
    return tuple(found)


def phrase(name: str, ends: Iterable[Bound]) -> str:
    """Format a range around the name of its type.

    >>> phrase("float", bounds(typing.Annotated[float, Gt(0), Le(1)])), phrase("int", [Bound(">=", 1)])
    ('0 < float <= 1', 'int >= 1')
    """
    low = [f"{bound.limit:g} {_TURNED[bound.sign]} " for bound in ends if bound.sign in _TURNED]
    high = [f" {bound.sign} {bound.limit:g}" for bound in ends if bound.sign not in _TURNED]
    if low and not high:
        return name + "".join(f" {bound.sign} {bound.limit:g}" for bound in ends)
    return "".join(low) + name + "".join(high)


def plain(hint: Any) -> Any:
    """Return an annotation without `Annotated`."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def union_of(hint: Any) -> tuple[Any, ...]:
    """Return the options of a union, or the annotation itself if it is not a union."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def in_range(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    """Validate an attrs field against the bounds of its annotation; None and arrays, traced or not, pass unchecked.

    Raises:
        ConfigError: with the field, the value, and the allowed range.
    """
    hint = _hints(type(instance))[field.name]
    ends = bounds(hint)
    if isinstance(value, int | float) and not all(bound.holds(value) for bound in ends):
        (number,) = {plain(option) for option in union_of(hint)} & {int, float}
        where = f"{type(instance).__name__}.{field.name}"
        raise ConfigError(f"{where}: expected {phrase(number.__name__, ends)}, got {value!r}.")


@functools.lru_cache(maxsize=256)  # to evaluate annotations takes longer than all else that reading a config does
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _constraints(hint: Any) -> Iterator[BaseMetadata]:
    """Yield the constraints of annotated-types in an annotation, with groups such as `Interval` split up."""
    if typing.get_origin(hint) is typing.Annotated:
        for mark in hint.__metadata__:
            if isinstance(mark, GroupedMetadata):
                yield from typing.cast("Iterable[BaseMetadata]", mark)
            elif isinstance(mark, BaseMetadata):
                yield mark
