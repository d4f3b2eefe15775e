"""The problems of a configuration, collected so that they can all be reported together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable

import attrs

from dovetail.errors import ConfigError, DovetailWarning

SHOWN = 20
"""How many errors are printed: a file that is not a config has one in every line."""


@attrs.define
class Problems:
    """Errors and warnings, each with the location that it is about."""

    _found: dict[tuple[str, str], None] = attrs.field(factory=dict)
    _warnings: dict[tuple[str, str], None] = attrs.field(factory=dict)
    _first: dict[Hashable, str] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, place: str, text: str) -> None:
        """Record an error at a location; recording the same one again has no effect."""
        self._found[place, text] = None

    def warn(self, place: str, text: str) -> None:
        """Record a warning about something that a later version will refuse."""
        self._warnings[place, text] = None

    def check_once(self, what: str, key: Hashable, file: str, place: str) -> None:
        """Record an error if the same file binds a key twice; overrides may do so."""
        first = self._first.setdefault((key, file), place)
        if file and first != place:
            self.add(place, f"{what} is already bound at {first}; keep one of the two")

    def raise_if_any(self) -> None:
        """Raise all errors at once, sorted by file and line.

        Raises:
            ConfigError: with one line for each error, for the first `SHOWN` of them.
        """
        if self._found:
            found = sorted(self._found, key=lambda problem: _position(problem[0]))
            lines = [f"{place}: {text}" for place, text in found[:SHOWN]]
            more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
            raise ConfigError("\n".join(lines + more))

    def warn_if_any(self) -> None:
        """Issue a `DovetailWarning` for each warning."""
        for place, text in self._warnings:
            warnings.warn(f"{place}: {text}", DovetailWarning, stacklevel=4)


def _position(place: str) -> tuple[str, int]:
    """Return the file and line of a location, as a sort key; other locations come last.

    >>> _position("a.gin:12 (%lr at b.gin:3)"), _position("--set train.lr=x")
    (('a.gin', 12), ('\\uffff', 0))
    """
    match = re.match(r"([^:]+):(\d+)", place)
    return (match[1], int(match[2])) if match else ("\uffff", 0)
