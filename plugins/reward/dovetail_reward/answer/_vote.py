"""A canonical spelling for answers."""

from __future__ import annotations

import decimal
from typing import Final

from dovetail_reward._latex import bare
from dovetail_reward._numbers import number

_WRITTEN_OUT: Final = 28
"""Up to so many digits a number is written without an exponent."""


def vote(answer: str | None) -> str | None:
    """Return the canonical spelling of an answer: numbers in a single form, text without surrounding white space.

    Signs of emphasis and of mathematics around a number do not count.

    >>> vote(" $1,234.50"), vote("**1234.5**"), vote("Paris "), vote(" "), vote(None)
    ('1234.5', '1234.5', 'Paris', None, None)
    """
    if answer is None or not answer.strip():
        return None
    value = number(bare(answer).replace("\\$", "$").replace("\\%", "%"))
    return answer.strip() if value is None else _spelt(value)


def _spelt(value: decimal.Decimal) -> str:
    """Write a number in the one form that all its spellings have, without losing a digit.

    >>> _spelt(decimal.Decimal("1.50e3")), _spelt(decimal.Decimal(2**100))
    ('1500', '1267650600228229401496703205376')
    """
    value = value.normalize(_exact(value))
    # adding zero writes out an exponent, as far as the precision goes
    return str(_exact(value).add(value, 0))


def _exact(value: decimal.Decimal) -> decimal.Context:
    """Return arithmetic that rounds no digit of a number, whose exponent a policy may write at will."""
    digits = max(len(value.as_tuple().digits), _WRITTEN_OUT)
    return decimal.Context(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
