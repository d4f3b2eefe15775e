"""Validators of hyperparameters that several tasks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from dovetail.errors import ConfigError


def within(task: str, low: float, high: float | None = None) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return an attrs validator: the number is None, or at least `low` and at most `high`.

    Raises:
        ConfigError: naming the setting, its value, and the range.
    """

    def validate(_: Any, field: attrs.Attribute[Any], value: float | None) -> None:
        if value is None or (low <= value and (high is None or value <= high)):
            return
        allowed = f"{low} or more" if high is None else f"from {low} to {high}"
        raise ConfigError(f"task.{task}.{field.name} is {value}; it must be {allowed}")

    return validate
