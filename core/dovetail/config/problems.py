"""All that is wrong with a configuration, collected to be reported at once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable

import attrs

from dovetail.errors import ConfigError, DovetailWarning


@attrs.define
class Problems:
    """What is wrong, each with the place it is about, and what will be."""

    _found: dict[tuple[str, str], None] = attrs.field(factory=dict)
    _warnings: dict[tuple[str, str], None] = attrs.field(factory=dict)
    _first: dict[Hashable, str] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, place: str, text: str) -> None:
        """Note what is wrong at a place; the second time changes nothing."""
        self._found[place, text] = None

    def warn(self, place: str, text: str) -> None:
        """Note what is understood today and will not always be."""
        self._warnings[place, text] = None

    def check_once(self, what: str, key: Hashable, file: str, place: str) -> None:
        """Note it if a file binds the same key twice; an override may."""
        first = self._first.setdefault((key, file), place)
        if file and first != place:
            self.add(place, f"{what} is bound before, at {first}; keep one of the two")

    def raise_if_any(self) -> None:
        """Report, each file's problems by line.

        Raises:
            ConfigError: with one line for each problem.
        """
        if self._found:
            found = sorted(self._found, key=lambda problem: _position(problem[0]))
            raise ConfigError("\n".join(f"{place}: {text}" for place, text in found))

    def warn_if_any(self) -> None:
        """Give one `DovetailWarning` for each thing that will be wrong."""
        for place, text in self._warnings:
            warnings.warn(f"{place}: {text}", DovetailWarning, stacklevel=4)


def _position(place: str) -> tuple[str, int]:
    """The file and line of a place; other places come last.

    >>> _position("a.gin:12 (%lr at b.gin:3)"), _position("--set train.lr=x")
    (('a.gin', 12), ('\\uffff', 0))
    """
    match = re.match(r"([^:]+):(\d+)", place)
    return (match[1], int(match[2])) if match else ("\uffff", 0)
