"""Compare what a program printed, or a function returned, with what it should have."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, Final

TOLERANCE: Final = 1e-6
"""Between numbers that are not integers, relative, and absolute below 1."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def same_text(printed: str, expected: str) -> bool:
    r"""Tell whether two outputs have the same words on the same lines; empty lines and white space do not count.

    An integer is right by value alone (`2.0` for 2), another number within `TOLERANCE`.

    >>> same_text("1  2\n\n3.0 \n", "1 2\n3"), same_text("0.3333333", "0.33333333333"), same_text("1000001", "1000000")
    (True, True, False)
    >>> same_text("1\n2", "1 2"), same_text("1000000.1", "1000000")
    (False, False)
    """
    found, wanted = _lines(printed), _lines(expected)
    return found == wanted or (
        [len(line) for line in found] == [len(line) for line in wanted]
        and all(
            _same_word(word, right)
            for line, right_line in zip(found, wanted, strict=True)
            for word, right in zip(line, right_line, strict=True)
        )
    )


def same_json(returned: str, expected: Any) -> bool:
    """Tell whether JSON spells a value; numbers that are not integers are right within `TOLERANCE`.

    An expected list of one value is also met by the value itself, as collections of tests wrap results so.

    >>> same_json("[1, 0.3333333]", [1, 1 / 3]), same_json("[1, 2]", [[1, 2]]), same_json("[1]", [2])
    (True, True, False)
    >>> same_json("oops", 1)
    False
    """
    try:
        value = json.loads(returned)
        wrapped = isinstance(expected, list) and len(expected) == 1
        return _same_value(value, expected) or (wrapped and _same_value(value, expected[0]))
    except (ValueError, RecursionError):
        return False


def _lines(text: str) -> list[list[str]]:
    return [words for line in text.split("\n") if (words := line.split())]


def _same_word(word: str, right: str) -> bool:
    if word == right:
        return True
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(right)):
        return False
    if _INTEGER.fullmatch(right):
        return Decimal(word) == Decimal(right)
    return _close(float(word), float(right))


def _same_value(value: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(_same_value, value, expected))
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(_same_value(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, float) and isinstance(value, int | float):
        return _close(value, expected)
    return value == expected


def _close(number: float, right: float) -> bool:
    return math.isclose(number, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
