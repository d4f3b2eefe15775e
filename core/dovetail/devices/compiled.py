"""Compiled functions, shared by all runs of a process that differ only in numbers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

import attrs
import jax

from dovetail.devices.population import CURRENT

NUMBERS: Final = {"numbers": True}
"""Metadata of an attrs field with hyperparameters that compiled functions receive as arguments."""

KEPT = 64
"""The number of compiled functions that a process caches."""

_SHARING: Final = threading.Lock()
"""Runs of a population that ask at the same moment get the same function; the cache alone would make each its own."""


def share(owner: Callable[..., Any], *, donate: tuple[int, ...] = ()) -> Compiled:
    """Return an attrs instance's `__call__`, compiled: one function for all instances that differ only in numbers.

    The fields marked `NUMBERS` are removed from the instance before it is traced, at every depth, so that compiled code
    cannot depend on them; the other fields are compared by value.

    Args:
        owner: an attrs instance that consists of attrs instances, mappings, tuples and hashable values.
        donate: positions of arguments whose buffers may be reused.
    """
    bare = _without_numbers(owner)
    with _SHARING:
        return _compiled(_Same(bare, _value(bare)), donate)


@attrs.frozen(eq=False)
class Compiled:
    """A compiled function; the calls of a population's runs are combined into one."""

    function: Callable[..., Any]
    static: tuple[int, ...]
    donate: tuple[int, ...]
    alone: Callable[..., Any] = attrs.field(init=False, repr=False)
    """The function, compiled for one run."""

    def __attrs_post_init__(self) -> None:
        made = jax.jit(self.function, static_argnums=self.static, donate_argnums=self.donate)
        object.__setattr__(self, "alone", made)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, in a population together with the other runs."""
        population = CURRENT.get()
        return self.alone(*arguments) if population is None else population.call(self, arguments)


def compiled(*, static: tuple[int, ...] = (), donate: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Compiled]:
    """Return a decorator like `jax.jit` for module-level functions that an engine may call during a run.

    >>> @compiled(static=(1,))
    ... def power(x, n):
    ...     return x**n
    >>> float(power(jax.numpy.float32(3), 2))
    9.0
    """
    return lambda function: Compiled(function, static, donate)


@attrs.frozen
class _Same:
    """A function with a key, equal to every other one with the same key."""

    function: Callable[..., Any] = attrs.field(eq=False)
    key: Hashable


@functools.lru_cache(maxsize=KEPT)
def _compiled(same: _Same, donate: tuple[int, ...]) -> Compiled:
    return Compiled(same.function.__call__, (), donate)


class _TakenOut(Mapping[str, float]):
    """Replaces removed numbers. Reading it is a bug, because one run's number would be compiled in for all runs."""

    def __getitem__(self, key: str) -> float:
        raise self._mistake(key)

    def __iter__(self) -> Iterator[str]:
        raise self._mistake("all")

    def __len__(self) -> int:
        raise self._mistake("all")

    @staticmethod
    def _mistake(key: str) -> RuntimeError:
        return RuntimeError(f"a compiled function reads the number '{key}' where it must receive it in `hyper`")


_TAKEN_OUT: Final = _TakenOut()


def _without_numbers(value: Any) -> Any:
    if _is_record(value):
        changes = {
            field.alias: _TAKEN_OUT if field.metadata.get("numbers") else _without_numbers(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if field.init
        }
        return attrs.evolve(value, **changes)
    if isinstance(value, Mapping):
        return {name: _without_numbers(item) for name, item in value.items()}
    return tuple(map(_without_numbers, value)) if type(value) is tuple else value


def _value(value: Any) -> Hashable:
    """Return a hashable object that is equal only for equal values."""
    if value is _TAKEN_OUT:
        return None
    if _is_record(value):
        fields = (_value(getattr(value, field.name)) for field in attrs.fields(type(value)))
        return (type(value), *fields)
    if isinstance(value, Mapping):
        return (dict, *((name, _value(item)) for name, item in value.items()))
    if isinstance(value, tuple | list):
        return (type(value), *map(_value, value))
    return type(value), value.hex() if isinstance(value, float) else value


def _is_record(value: Any) -> bool:
    """Return whether a value is an attrs instance that is compared by value, not by identity as components are."""
    return attrs.has(type(value)) and type(value).__eq__ is not object.__eq__
