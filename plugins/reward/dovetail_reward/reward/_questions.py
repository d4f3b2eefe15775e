"""Answers to open questions, in the normal form of SQuAD."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from dovetail_reward._numbers import spelled

Truths = str | float | Sequence[str | float] | None
"""A cell of the column that holds the right answer, or all spellings of it; None where there is none."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Convert to lower case, remove ASCII punctuation and English articles, and collapse white space.

    Rajpurkar et al. 2016, *SQuAD*, section 6.1.

    >>> normal(" The U.S.A.,  an ally "), normal("A")
    ('usa ally', '')
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def spellings(truths: str | float | Sequence[str | float]) -> list[str]:
    """Return the right answers of a cell as texts.

    >>> spellings("Paris"), spellings(["1789", 1789.0])
    (['Paris'], ['1789', '1789'])
    """
    several = [truths] if isinstance(truths, str) or not isinstance(truths, Sequence) else truths
    return [spelled(truth) for truth in several]
