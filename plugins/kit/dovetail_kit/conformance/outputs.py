"""Say of an example that fails whether its numbers are right, and only the way in which they are written is not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

ROUNDED: Final = "np.asarray(x, float).round(4).tolist()"
"""How an example shows an array of float32."""
_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan\b|inf\b)", re.IGNORECASE)
_ARRAY: Final = re.compile(r"\b(?:[Aa]rray|float\d+|int\d+)\(|\bdtype=")
_WRITING: Final = re.compile(
    r"\b(?:np\.|jnp\.|numpy\.)?(?:Array|array|float\d+|int\d+|dtype=\w+|weak_type=\w+)\b|[()\s,]"
)
"""What the repr of an array or of its number adds to the numbers and their brackets."""


def only_written_otherwise(report: str) -> str:
    """Return what differs in the first failure of a report of doctest if its numbers agree; empty if they do not.

    >>> only_written_otherwise("Expected:\\n    Array([0.5, 0.])\\nGot:\\n    Array([0.50000006, -0.])\\n")[:34]
    'the numbers agree: 0.50000006 is 0'
    """
    found = re.search(r"^Expected:\n(.*?)^Got:\n(.*?)(?=^\*{10}|\Z)", report, re.MULTILINE | re.DOTALL)
    if not found:
        return ""
    wanted, got = (_WRITING.sub(" ", text) for text in found.groups())
    pairs = list(zip(_NUMBER.findall(wanted), _NUMBER.findall(got), strict=False))
    if not pairs or _without_numbers(wanted) != _without_numbers(got) or not all(_agree(*pair) for pair in pairs):
        return ""
    said = list(_differences(pairs))
    if not said and not any(map(_ARRAY.search, found.groups())):  # such as a text '0.0' in the place of '0'
        return ""
    return f"the numbers agree: {'; '.join(said or ['an array shows its dtype and weak_type too, so show x.tolist()'])}"


def _without_numbers(text: str) -> str:
    return re.sub(r"\s+", "", _NUMBER.sub("#", text))


def _agree(one: str, other: str) -> bool:
    a, b = float(one), float(other)
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))


def _differences(pairs: list[tuple[str, str]]) -> Iterator[str]:
    """Yield an example of digits that rounding gave, and one of a zero with another sign."""
    numbers = [(wanted, got, float(wanted), float(got)) for wanted, got in pairs]
    for wanted, got, a, b in numbers:
        if a != b and not math.isnan(a):
            yield f"{got} is {wanted} but for rounding, so show {ROUNDED}"
            break
    for wanted, got, a, b in numbers:
        if a == b == 0 and math.copysign(1, a) != math.copysign(1, b):
            yield f"{got} is {wanted} with another sign, so show x + 0.0, which has no -0.0"
            break
