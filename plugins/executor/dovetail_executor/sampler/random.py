"""Independent random draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from dovetail_lab.kinds import Proposal, Result
from dovetail_lab.sweep import Distribution


@attrs.frozen(kw_only=True)
class Random:
    """Independent draws from counters: draw i of a key depends on the key, `sweep.draw_seed` and i alone.

    So 40 draws begin with the 20 of an earlier sweep, and another key beside it changes nothing.
    """

    learns: ClassVar[bool] = False

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> Drawn:
        """Draw all of them."""
        numbers = range(draws)
        return Drawn([{key: form.draw(seed, key, index) for key, form in space.items()} for index in numbers])


@attrs.define
class Drawn:
    """A study whose settings are known in advance."""

    settings: list[dict]
    asked: int = 0

    def ask(self) -> Proposal | None:
        """Return the next of them."""
        if self.asked == len(self.settings):
            return None
        self.asked += 1
        return Proposal(values=self.settings[self.asked - 1])

    def tell(self, number: int, result: Result) -> None:
        """Do nothing: results change nothing."""
