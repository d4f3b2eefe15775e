"""A single-file plugin: the atlas' second task, sums found by counting on, so that completions differ much in length.

    18 + 3 =     901 <answer>21</answer>

The last digit of each number is said on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

import dovetail
from dovetail.data import View
from dovetail.protocols import Example, Split

SPLITS: tuple[Split, ...] = ("eval", "sft", "train")
OWNERS = (0, 1, 1, 2, 2, 2, 2, 2)
"""Which split owns a sum, by a number that is drawn for it."""
CORPUS = 2000


@dovetail.hookimpl
def dovetail_components(register: Any) -> None:
    register("task", "counting", "counting:Counting")


@attrs.frozen(kw_only=True)
class Counting:
    """Sums of `first`, 0 to `largest`, and `second`, 1 to `most`: the answer takes as many numbers as `second` says.

    Each sum belongs to one split. Columns: `question` and `answer`.

    Args:
        largest: the greatest first number.
        most: the greatest second number.
        noise: the fraction of demonstrations that count too far or not far enough, by up to three numbers.
    """

    largest: int = 60
    most: int = 16
    noise: float = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        return ("question", "answer")

    def examples(self, split: Split) -> Sequence[Example]:
        size = {"eval": 500, "sft": 30_000, "train": 10_000}[split]
        return View(range(size), partial(self._example, split))

    def corpus(self) -> Sequence[str]:
        def text(index: int) -> str:
            example = self._example("sft", index)
            return example["prompt"] + example["completion"]

        return View(range(CORPUS), text)

    def _example(self, split: Split, index: int) -> Example:
        rng = np.random.default_rng((SPLITS.index(split), index))
        owned = np.flatnonzero(self._owners == SPLITS.index(split))
        first, second = divmod(int(rng.choice(owned)), self.most)
        example: Example = {
            "prompt": f"{first} + {second + 1} =",
            "question": f"{first} + {second + 1}",
            "answer": str(first + second + 1),
        }
        if split != "sft":
            return example
        wrong = rng.random() < self.noise
        steps = max(1, second + 1 + int(rng.choice([-3, -2, -1, 1, 2, 3]))) if wrong else second + 1
        said = "".join(str(number % 10) for number in range(first + 1, first + steps + 1))
        return {**example, "completion": f"{said} <answer>{first + steps}</answer>"}

    @property
    def _owners(self) -> np.ndarray:
        return np.random.default_rng(0).choice(OWNERS, (self.largest + 1) * self.most)
