"""Calls that are written as JSON objects."""

from __future__ import annotations

import json
from typing import Any

from dovetail.protocols import Call


def call_of(found: Any, key: str = "arguments") -> Call:
    """Return the call that an object `{"name": ..., key: {...}}` stands for; a text may hold its arguments as JSON.

    Raises:
        ValueError: with a message for the model.
    """
    arguments = found.get(key, {}) if isinstance(found, dict) else {}
    arguments = loaded(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not isinstance(arguments, dict):
        raise ValueError(f'a call is a JSON object {{"name": "...", "{key}": {{...}}}}')
    return Call(found["name"], arguments)


def loaded(text: str) -> Any:
    """Read JSON.

    Raises:
        ValueError: with a message for the model.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the call is not valid JSON: {error}") from error
