"""Task `sequences`: how a sequence of numbers goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import attrs
import dovetail
from annotated_types import Ge
from dovetail.ranges import in_range

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

SPLITS = ("train", "eval", "sft")


@dovetail.declares(repeats=True)  # of so few numbers there are few sequences
@attrs.frozen(kw_only=True)
class Sequences:
    """Three numbers with equal steps between them; asked for is the fourth.

    Example `i` of a split is a pure function of (`seed`, split, `i`). A sequence belongs to one split by the sum of its
    first number and its step, so that `eval` asks nothing that has been trained on.

    Columns: `answer`.

    Args:
        size: examples in each split.
        largest: of the first number and of the step.
        seed: draws other examples.

    >>> Sequences().examples("train")[0]
    {'prompt': '3 18 33 ', 'answer': '48'}
    >>> asked = [example["prompt"].split() for example in Sequences(size=300, largest=4).examples("eval")]
    >>> drawn = [(int(first), int(second) - int(first)) for first, second, _ in asked]
    >>> len(drawn), {step for _, step in drawn}, {(first + step) % 3 for first, step in drawn}
    (300, {1, 2, 3, 4}, {1})
    >>> len(Sequences(size=1).corpus()[0].split())  # the answer too
    4
    """

    size: Annotated[int, Ge(1)] = attrs.field(default=500, validator=in_range)
    largest: Annotated[int, Ge(3)] = attrs.field(default=20, validator=in_range)
    seed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """`answer`."""
        return ("answer",)

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split."""
        return [self._example(split, index) for index in range(self.size)]

    def corpus(self) -> Sequence[str]:
        """Return demonstrations, on which a tokenizer may be trained."""
        return [example["prompt"] + example["completion"] for example in self.examples("sft")]

    def _example(self, split: Split, index: int) -> Example:
        draw = random.Random(f"{self.seed} {split} {index}")
        first = draw.randint(0, self.largest)
        owned = [step for step in range(1, self.largest + 1) if (first + step) % len(SPLITS) == SPLITS.index(split)]
        step = draw.choice(owned)
        prompt = " ".join(str(first + n * step) for n in range(3)) + " "
        example = {"prompt": prompt, "answer": str(first + 3 * step)}
        return {**example, "completion": example["answer"]} if split == "sft" else example
