"""A finding of the doctor."""

from __future__ import annotations

from typing import Final, Literal

import attrs

Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")


@attrs.frozen
class Finding:
    """A problem and its remedy; an error keeps the plugin, or one of its components, from working."""

    level: Level
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.about}: {self.text}"
