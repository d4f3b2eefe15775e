"""A base class for tasks whose examples are generated on access and whose demonstrations are episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import attrs
import numpy as np
from annotated_types import Ge

from dovetail.data import View
from dovetail.ranges import in_range

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

STREAM: Final = {"train": 0, "eval": 1, "sft": 2}
CORPUS: Final = 500
"""Number of demonstrations that a tokenizer is trained on."""


@attrs.frozen(kw_only=True)
class Made:
    """Example `i` of a split is a function of (`seed`, split, `i`) alone; sizes and seed are parameters of the task."""

    train_size: Annotated[int, Ge(1)] = attrs.field(default=10_000, validator=in_range)
    eval_size: Annotated[int, Ge(1)] = attrs.field(default=256, validator=in_range)
    sft_size: Annotated[int, Ge(1)] = attrs.field(default=2_000, validator=in_range)
    seed: int = 0

    @abstractmethod
    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example, drawn with its own generator."""

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split, which are made on access."""
        sizes = {"train": self.train_size, "eval": self.eval_size, "sft": self.sft_size}
        return View(range(sizes[split]), partial(self._example, split))

    def corpus(self) -> Sequence[str]:
        """Return demonstrations with their prompts."""
        return View(range(CORPUS), self._text)

    def _example(self, split: Split, index: int) -> Example:
        return self.make(split, np.random.default_rng([self.seed % 2**32, STREAM[split], index]))

    def _text(self, index: int) -> str:
        example = self._example("sft", index)
        return example["prompt"] + "".join(message["content"] for message in example["completion"])
