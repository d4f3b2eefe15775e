"""Samples large tables of cases: the fast suite runs every nth case, the slow suite all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(cases: Sequence[Any], *, every: int) -> list[Any]:
    """Return pytest parameters; all except the first of each `every` are marked slow."""
    found = []
    for i, case in enumerate(cases):
        param = case if hasattr(case, "marks") else pytest.param(case)
        slow = [pytest.mark.slow] * (i % every != 0)
        found.append(pytest.param(*param.values, id=param.id, marks=[*param.marks, *slow]))
    return found
