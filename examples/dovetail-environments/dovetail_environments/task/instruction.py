"""Task `instruction`: the same prompt again and again, for environments whose seed makes the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
from annotated_types import Ge
from dovetail.data import View
from dovetail.protocols import Example, Split
from dovetail.ranges import in_range
from dovetail.registry import declares


@declares(
    repeats=True,
    expected_failures={"held_out": "the prompt is always the same; an environment's seed is not a part of it"},
)
@attrs.frozen(kw_only=True)
class Instruction:
    """A prompt that says what is to be done; what there is to see comes from the interaction's `reset`.

    Args:
        prompt: the text.
        completion: what a demonstration says, for a tokenizer that is trained and for a warm start.
        size: examples of each split.

    >>> Instruction(prompt="Go.").examples("train")[3]["prompt"]
    'Go.'
    """

    prompt: str = "Find the way.\n"
    completion: str = "right"
    size: Annotated[int, Ge(1)] = attrs.field(default=1000, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """None."""
        return ()

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the prompt as often as there are examples."""
        demonstrated = {"completion": self.completion} if split == "sft" else {}
        return View(range(self.size), lambda index: {"prompt": self.prompt, **demonstrated})

    def corpus(self) -> Sequence[str]:
        """Return what a tokenizer may be trained on."""
        return [f"{self.prompt}{self.completion}"] * 100
