"""Check values against annotations, convert them, and write them in gin."""

from __future__ import annotations

import collections.abc
import math
import types
import typing
from typing import Any

from dovetail.config.grammar import Word
from dovetail.errors import nearest
from dovetail.ranges import bounds, phrase, plain, union_of

LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
"""The largest float32, the dtype in which hyperparameters are traced."""


class Mismatch(Exception):
    """A value does not fit its annotation; the message says what was expected."""


def fit(value: Any, hint: Any) -> Any:
    """Convert a value to its annotation, and check it against the range in the annotation.

    An int is converted to a float, a list to a tuple or a tuple to a list, where the annotation asks for it. A bool is
    not a number.

    >>> fit([1, 2], tuple[float, ...])
    (1.0, 2.0)

    Raises:
        Mismatch: if it does not fit, or cannot be written in gin.
    """
    written = _written(value, hint)
    try:
        fitted = _fit(written, hint)
    except Mismatch:
        raise Mismatch(f"expected {describe(hint)}, got {written!r}.{suggestion(written, hint)}") from None
    literal(fitted)
    return fitted


def literal(value: Any) -> str:
    """Write a value in gin, so that parsing the text gives the same value.

    >>> literal((0.1, None, [float("-inf")], {"a": "b"}))
    "(0.1, None, [-inf], {'a': 'b'})"

    Raises:
        Mismatch: if it is not None, a bool, int, float, str, or a tuple, list or dict of these.
    """
    kind = type(value)
    if kind is tuple:
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if kind is list:
        return f"[{', '.join(map(literal, value))}]"
    if kind is dict:
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if kind is str and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Mismatch(f"{value!r} holds half of a surrogate pair, which no file or folder can hold")
    if value is None or kind in (bool, int, float, str):
        return repr(value)
    raise Mismatch(f"{value!r} is not a gin value")


def describe(hint: Any) -> str:
    """Name a type as its author wrote it, with its range.

    >>> describe(typing.Literal["loss", "reward"] | None)
    "'loss' or 'reward' or None"
    >>> from annotated_types import Ge, Interval
    >>> describe(tuple[typing.Annotated[int, Ge(1)] | str, ...])
    'tuple[int >= 1 | str, ...]'
    >>> describe(typing.Annotated[float | None, Interval(gt=0, le=1)])
    '0 < float <= 1 | None'
    """
    if typing.get_origin(hint) is typing.Annotated:
        first, *others = union_of(plain(hint))
        return " | ".join([phrase(describe(first), bounds(hint)), *map(describe, others)])
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, arguments))
    if _is_union(hint):
        either = " or " if any(typing.get_origin(option) is typing.Literal for option in arguments) else " | "
        return either.join(map(describe, arguments))
    if arguments and isinstance(hint, types.GenericAlias):
        return f"{hint.__origin__.__name__}[{', '.join(map(describe, arguments))}]"
    if hint in (types.NoneType, Ellipsis):
        return "None" if hint is types.NoneType else "..."
    return hint.__name__ if isinstance(hint, type) and not arguments else str(hint).replace("typing.", "")


def suggestion(value: Any, hint: Any) -> str:
    """Suggest what was meant by a value that does not fit its annotation; empty if nothing is similar.

    >>> suggestion("none", int | None), suggestion("los", typing.Literal["loss", "reward"])
    (' Did you mean None?', " Did you mean 'loss'?")
    """
    if isinstance(value, int | float) and not _representable(value):
        return f" It is beyond {'64-bit integers' if isinstance(value, int) else 'float32'}."
    if not isinstance(value, str):
        return ""
    options = _options(hint)
    spelled = {"none": None, "null": None, "true": True, "false": False}.get(value.lower(), value)
    if spelled is not value and type(spelled) in options:
        return f" Did you mean {spelled}?"
    return nearest(value, [option for option in options if isinstance(option, str)])


def _written(value: Any, hint: Any) -> Any:
    """Copy a value, with free words as strings, and a single nan object, so that equal configs compare equal."""
    if isinstance(value, Word):
        if value.free:
            return value.text
        advice = f" Write {value.text!r}." if str in _options(hint) else suggestion(value.text, hint)
        raise Mismatch(
            f"{value.text} is not quoted, but this is not a component's name; expected {describe(hint)}.{advice}"
        )
    if isinstance(value, list | tuple):
        return type(value)(_written(item, hint) for item in value)
    if isinstance(value, dict):
        return {_written(k, hint): _written(v, hint) for k, v in value.items()}
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types and literal values that an annotation allows at its top level."""
    hint = plain(hint)
    if _is_union(hint):
        return tuple(leaf for option in typing.get_args(hint) for leaf in _options(option))
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else (hint,)


def _is_union(hint: Any) -> bool:
    return union_of(hint) != (hint,)


def _fit(value: Any, hint: Any) -> Any:  # noqa: PLR0911 - one line for each form of annotation
    origin = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if origin is typing.Annotated:
        return _in_range(_fit(value, arguments[0]), hint)
    if _is_union(hint):
        return _fit_union(value, arguments)
    if hint is float:
        return _number(value, float)
    if hint is int:
        return _number(value, int)
    if origin in (tuple, list) and isinstance(value, list | tuple):
        return origin(_items(value, arguments, fixed=origin is tuple))
    if origin in (collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable) and isinstance(
        value, list | tuple
    ):
        return type(value)(_items(value, arguments, fixed=False))
    if origin in (dict, collections.abc.Mapping) and isinstance(value, dict):
        key, item = arguments or (Any, Any)
        return {_fit(k, key): _fit(v, item) for k, v in value.items()}
    return _judged(value, hint)


def _fit_union(value: Any, options: tuple[Any, ...]) -> Any:
    """Fit a value to one of several options, preferring one that leaves it unchanged to one that converts it."""
    fitted = []
    for option in options:
        try:
            fitted.append(_fit(value, option))
        except Mismatch:
            continue
    same = [candidate for candidate in fitted if type(candidate) is type(value) and candidate == value]
    if not fitted:
        raise Mismatch
    return (same or fitted)[0]


def _in_range(value: Any, hint: Any) -> Any:
    if value is not None and not all(bound.holds(value) for bound in bounds(hint)):
        raise Mismatch
    return value


def _number(value: Any, kind: type[Any]) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        raise Mismatch
    if not _representable(value):
        raise Mismatch
    return kind(value)


def _representable(value: int | float) -> bool:
    """Tell whether a number fits an int64, or a float32, in which a larger one would silently become infinite."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not math.isfinite(value) or abs(value) <= LARGEST_FLOAT


def _items(value: list[Any] | tuple[Any, ...], arguments: tuple[Any, ...], *, fixed: bool) -> list[Any]:
    if not arguments:
        return list(value)
    if not fixed or arguments[-1] is Ellipsis:
        return [_fit(item, arguments[0]) for item in value]
    if len(arguments) != len(value):
        raise Mismatch
    return [_fit(item, hint) for item, hint in zip(value, arguments, strict=True)]


def _judged(value: Any, hint: Any) -> Any:
    import typeguard

    if type(value) is hint:  # most are, and to ask typeguard takes as long as all else
        return value
    try:
        strategy = typeguard.CollectionCheckStrategy.ALL_ITEMS
        return typeguard.check_type(value, hint, collection_check_strategy=strategy)
    except typeguard.TypeCheckError:
        raise Mismatch from None
