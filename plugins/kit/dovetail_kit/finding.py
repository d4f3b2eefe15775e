"""What a check of a plugin has found."""

from __future__ import annotations

from typing import Literal

import attrs

Level = Literal["error", "warning", "note"]


@attrs.frozen
class Finding:
    """One thing, with what to do about it; an error keeps the plugin, or a component of it, from working."""

    level: Level
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.about}: {self.text}"
