"""A canonical spelling for answers."""

from __future__ import annotations

from dovetail_reward._numbers import number


def vote(answer: str | None) -> str | None:
    """Return the canonical spelling of an answer: numbers in a single form, text without surrounding white space.

    >>> vote(" $1,234.50"), vote("1234.5"), vote("Paris "), vote(" "), vote(None)
    ('1234.5', '1234.5', 'Paris', None, None)
    """
    if answer is None or not answer.strip():
        return None
    value = number(answer)
    return answer.strip() if value is None else str(value.normalize() + 0)
