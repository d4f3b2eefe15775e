"""Large tables of cases: every nth runs at each change, the others with what is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(cases: Sequence[Any], *, every: int) -> list[Any]:
    """Return pytest parameters, all marked slow but the first of each `every`."""
    found = []
    for i, case in enumerate(cases):
        param = case if hasattr(case, "marks") else pytest.param(case)
        slow = [pytest.mark.slow] * (i % every != 0)
        found.append(pytest.param(*param.values, id=param.id, marks=[*param.marks, *slow]))
    return found
