"""The text tower of a larger model, such as one that also reads images: its names there, and in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

TEXT: Final = "text_config"
PARTS: Final = (TEXT, "vision_config", "audio_config")
"""Keys under which the `config.json` of a larger model describes its parts."""


@attrs.frozen
class Tower:
    """Where the folder of a larger model stores its text tower, which is all that is read of it.

    Attributes:
        layouts: one entry for each layout that such folders have: what names begin with in a folder of the tower alone
            -> what they begin with there. The first has the names of the modules in `transformers`, to which adapters
            refer.
        others: what the names of the tensors of the other parts begin with.
        config: `config.json` of a folder of the tower alone, which is what an export writes.
    """

    layouts: tuple[Mapping[str, str], ...]
    others: tuple[str, ...]
    config: Mapping[str, Any]

    def layout(self, stored: Iterable[str]) -> Mapping[str, str]:
        """Return the layout that most of these names of tensors have; the first if several have as many."""
        names = list(stored)
        return max(self.layouts, key=lambda layout: sum(name.startswith(tuple(layout.values())) for name in names))


def moved(name: str, layout: Mapping[str, str]) -> str:
    """Return the name in the larger folder of a module or tensor of the tower.

    >>> layout = {"model.": "language_model.model."}
    >>> moved("model.norm.weight", layout), moved("lm_head", layout)
    ('language_model.model.norm.weight', 'lm_head')
    """
    begin = next((begin for begin in layout if f"{name}.".startswith(begin)), None)
    return name if begin is None else f"{layout[begin].rstrip('.')}{name[len(begin) - 1 :]}"
