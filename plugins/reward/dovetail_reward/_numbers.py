"""Read numbers as people and models write them, exactly, in time linear in the text."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real

_DIGITS = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(rf"(?:(?:(?<!\w)[+-])?(?:\$ ?)?|\$[+-]){_DIGITS}")
_WHOLE = re.compile(rf"({_NUMBER.pattern})(?: ?%)?\.?")
_GOES_ON = re.compile(r" ?(?:\d+ ?)?/ ?\d|[:,.^*×]-?\{?\d| ?\\(?:times|cdot|[dt]?frac)")
"""What makes a fraction, a mixed number, a time, a product or a power of the number before it."""
_MINUS = str.maketrans({"−": "-", "﹣": "-", "－": "-"})
_SEPARATOR = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!])(?=\d{3})")
_DECORATION = str.maketrans("", "", "$, ")

Truth = str | float | None
"""A cell of the column that holds the right answer; None where there is none."""


def number(text: str) -> Decimal | None:
    r"""Return the number that a text consists of, or None.

    A number may have a sign (also the minus sign −), thousands separators, a leading `$`, a trailing `%` (ignored:
    `50%` is 50), a final period, an exponent, and the digits of any script. Infinities, NaN and hexadecimals are not
    numbers. Separators may be those of LaTeX: `1{,}234` and `1\,234`. Values are exact: 2^64 and 2^64 + 1 differ.

    >>> number(" $1,234.50. "), number("−5%"), number("1,2"), number("nan")
    (Decimal('1234.50'), Decimal('-5'), None, None)
    """
    match = _WHOLE.fullmatch(_plain(text.strip()))
    return _value(match[1]) if match else None


def first_number(text: str) -> Decimal | None:
    """Return the first number in a text, else None. A hyphen after a letter or digit is not a sign.

    >>> first_number("about $1,250 or -3"), first_number("x-5"), first_number("...")
    (Decimal('1250'), Decimal('5'), None)
    """
    match = _NUMBER.search(_plain(text))
    return _value(match[0]) if match else None


def leading_number(text: str) -> Decimal | None:
    """Return the number that a text begins with, else None; NaN if it is only the beginning of one, as in `1/2`.

    >>> leading_number("72 apples"), leading_number("$1,250."), leading_number("about 72"), leading_number("3 1/2")
    (Decimal('72'), Decimal('1250'), None, Decimal('NaN'))
    """
    text = _plain(text)
    match = _NUMBER.match(text)
    if match is None:
        return None
    return Decimal("NaN") if _GOES_ON.match(text, match.end()) else _value(match[0])


def last_number(text: str) -> Decimal | None:
    """Return the last number in a text, else None. A hyphen after a letter or digit is not a sign.

    >>> last_number("3 or 1,250."), last_number("10-3"), last_number("...")
    (Decimal('1250'), Decimal('3'), None)
    """
    written = [match[0] for match in _NUMBER.finditer(_plain(text))]
    return _value(written[-1]) if written else None


def _plain(text: str) -> str:
    return _SEPARATOR.sub(",", text.translate(_MINUS))


def _value(written: str) -> Decimal | None:
    try:
        return Decimal(written.translate(_DECORATION))
    except InvalidOperation:  # an exponent beyond 10^18
        return None


def spelled(truth: str | float) -> str:
    """Write the right answer as a completion would: 18 and 18.0 both become `18`; text is unchanged.

    >>> spelled("18"), spelled(18), spelled(18.0), spelled(0.5)
    ('18', '18', '18', '0.5')
    """
    if isinstance(truth, Real) and not isinstance(truth, Integral) and float(truth).is_integer():
        return str(int(truth))
    return str(truth)
