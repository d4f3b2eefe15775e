"""Checks that every rollout engine must pass, for use in an engine's tests:

    from dovetail_kit.rollout import CHECKS, EngineCase

    case = EngineCase.of(MyRollout(), model, other_model, tokenizer)
    for check in CHECKS:
        check(case)

A check raises `AssertionError` with the wrong figures; its docstring states the claim and the usual cause of a failure.
Engines are compared with the model itself, run without a cache.
"""

from __future__ import annotations

from dovetail_kit.rollout import apart, checks, episodes
from dovetail_kit.rollout.case import EngineCase, Numbers
from dovetail_kit.rollout.checks import check_close
from dovetail_kit.rollout.expected import expected_logps

CHECKS = (*checks.CHECKS, *episodes.CHECKS, *apart.CHECKS)
"""All checks; each takes an `EngineCase`."""

__all__ = ["CHECKS", "EngineCase", "Numbers", "check_close", "expected_logps"]
