"""All that is wrong with a configuration, collected to be reported at once."""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from dovetail.errors import ConfigError


@attrs.define
class Problems:
    """A list of lines, each with the place it is about."""

    lines: list[str] = attrs.field(factory=list)
    _first: dict[Hashable, str] = attrs.field(factory=dict)

    def add(self, place: str, text: str) -> None:
        """Note what is wrong at a place."""
        self.lines.append(f"{place}: {text}")

    def check_once(self, what: str, key: Hashable, file: str, place: str) -> None:
        """Note it if a file binds the same key twice; an override may."""
        first = self._first.setdefault((key, file), place)
        if file and first != place:
            self.add(place, f"{what} is bound before, at {first}; keep one of the two")

    def raise_if_any(self) -> None:
        """Report.

        Raises:
            ConfigError: with one line for each problem.
        """
        if self.lines:
            raise ConfigError("\n".join(dict.fromkeys(self.lines)))
