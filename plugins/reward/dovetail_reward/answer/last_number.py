"""Answer `last_number`: the number at the end of the reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_reward import _numbers
from dovetail_reward.answer._vote import vote


def last_number(completions: Sequence[str]) -> list[str | None]:
    """The last number anywhere in a completion; None without one.

    Args:
        completions: texts without special tokens.

    >>> last_number(["6 * 7 = 42.", "#### 1,250", "no idea"])
    ['42', '1250', None]
    """
    found = [_numbers.last_number(text) for text in completions]
    return [None if value is None else vote(str(value)) for value in found]
