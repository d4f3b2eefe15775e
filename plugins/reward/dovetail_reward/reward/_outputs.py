"""Compare the output of a program, or the result of a function, with the expected one."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, Final

TOLERANCE: Final = 1e-6
"""For numbers that are not integers: relative, or absolute for expected values below 1."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def same_text(printed: str, expected: str) -> bool:
    r"""Tell whether two outputs have the same words on the same lines; empty lines and white space are ignored.

    Integers must have the same value (`2.0` matches 2), other numbers must agree within `TOLERANCE`.

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
    """Tell whether JSON text represents a value; numbers that are not integers must agree within `TOLERANCE`.

    An expected list with one value also matches the value itself, because some data sets wrap results in a list.

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
