"""Samples large tables of cases: the fast suite runs some of them, the slow suite more, the exhaustive suite all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(cases: Sequence[Any], *, every: int, slow: int = 1) -> list[Any]:
    """Return pytest parameters with the marks that leave every nth case to the fast suite and every mth to the slow.

    Args:
        cases: values, or parameters that may have marks.
        every: n.
        slow: m. `make test-all` runs the others.
    """
    found = []
    for i, case in enumerate(cases):
        param = case if hasattr(case, "marks") else pytest.param(case)
        found.append(pytest.param(*param.values, id=param.id, marks=[*param.marks, *marks(i, every, slow)]))
    return found


def marks(number: int, every: int, slow: int = 1) -> list[pytest.MarkDecorator]:
    """Return the marks of a case by its number in the table; an exhaustive test is a slow one, too."""
    if number % every == 0:
        return []
    return [pytest.mark.slow] if number % slow == 0 else [pytest.mark.slow, pytest.mark.exhaustive]
