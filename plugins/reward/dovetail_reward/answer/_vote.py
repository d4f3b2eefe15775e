"""A canonical spelling for answers."""

from __future__ import annotations

import decimal
from typing import Final

from dovetail_reward._latex import bare
from dovetail_reward._numbers import number

_WIDE: Final = decimal.Context(Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
"""Arithmetic that no exponent stops, which a policy may write at will."""


def vote(answer: str | None) -> str | None:
    """Return the canonical spelling of an answer: numbers in a single form, text without surrounding white space.

    Signs of emphasis and of mathematics around a number do not count.

    >>> vote(" $1,234.50"), vote("**1234.5**"), vote("Paris "), vote(" "), vote(None)
    ('1234.5', '1234.5', 'Paris', None, None)
    """
    if answer is None or not answer.strip():
        return None
    value = number(bare(answer).replace("\\$", "$").replace("\\%", "%"))
    return answer.strip() if value is None else str(_WIDE.add(value.normalize(_WIDE), 0))
