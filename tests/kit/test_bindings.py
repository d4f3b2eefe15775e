"""Names in the text of a module."""

from dovetail_kit.bindings import bound_by, needed_by

TEXT = '''
"""A module."""

from __future__ import annotations

import os.path
from typing import Any as Anything

SIZE, (WIDTH, _) = 1, (2, 3)


def function(argument: list[int]):
    """Say something.

    >>> import json
    >>> first = min(2, 1)
    """
    local = len(argument)
    return local


class Thing:
    """A thing."""

    field: int = 1
'''


def test_what_is_bound():
    assert bound_by(TEXT) == {"os", "Anything", "SIZE", "WIDTH", "_", "function", "Thing"}


def test_what_is_needed():
    needed = needed_by(TEXT)
    assert {name for name, does in needed.items() if does == "imports"} == {"os", "Anything", "json"}
    assert {name for name, does in needed.items() if does == "uses"} == {"list", "min", "len", "int"}
    assert {name for name, does in needed.items() if does == "defines"} == bound_by(TEXT) - {"os", "Anything"} | {
        "first"
    }
