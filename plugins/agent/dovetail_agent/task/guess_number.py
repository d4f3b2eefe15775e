"""Task `guess_number`: prompts and demonstrations of the interaction of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import numpy as np
from annotated_types import Ge, Interval

from dovetail.data import View
from dovetail.protocols import Turn
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.interaction.guess_number import GuessNumber

if TYPE_CHECKING:
    from dovetail.protocols import Example, Message, Split

STREAM = {"train": 0, "eval": 1, "sft": 2}
CORPUS = 500
"""Number of demonstrations that a tokenizer is trained on."""


@declares(
    expected_failures={"held_out": "every episode begins with the same words; the number is the environment's secret"}
)
@attrs.frozen(kw_only=True)
class Guessing:
    r"""Numbers to be guessed, each as likely as the others, and episodes of somebody who halves what is left.

    Columns: `number`, which the prompt does not say, and `answer`, the same as text. The splits are drawn
    independently; what is held out is not a number, but how it came.

    Args:
        largest: the numbers are 1 to this one.
        guesses: how many guesses a demonstration has at most; also a setting of the interaction.
        template: the prompt, with `{largest}`.
        message: what a demonstration's guess is answered; also a setting of the interaction.
        noise: the share of the demonstrations that guess blindly, which leaves listening to be learnt.
        train_size: examples in `train`.
        eval_size: examples in `eval`.
        sft_size: examples in `sft`.
        seed: draws other numbers.

    >>> task = Guessing(largest=3, guesses=2, message="\n{hint}\n")
    >>> task.examples("sft")[0]["prompt"]
    'A number from 1 to 3.\n'
    >>> [message["content"] for message in task.demonstrate(3, np.random.default_rng(0))]
    ['2', '\nhigher\n', '3']
    """

    largest: Annotated[int, Ge(2)] = attrs.field(default=16, validator=in_range)
    guesses: Annotated[int, Ge(1)] = attrs.field(default=5, validator=in_range)
    template: str = "A number from 1 to {largest}.\n"
    message: str = "\n{hint}\n"
    noise: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.0, validator=in_range)
    train_size: Annotated[int, Ge(1)] = attrs.field(default=10_000, validator=in_range)
    eval_size: Annotated[int, Ge(1)] = attrs.field(default=256, validator=in_range)
    sft_size: Annotated[int, Ge(1)] = attrs.field(default=2_000, validator=in_range)
    seed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The number to be guessed, and the same as text."""
        return ("number", "answer")

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split, which are made on access."""
        sizes = {"train": self.train_size, "eval": self.eval_size, "sft": self.sft_size}
        return View(range(sizes[split]), partial(self._example, split))

    def corpus(self) -> Sequence[str]:
        """Return demonstrations with their prompts."""
        return View(range(CORPUS), self._text)

    def demonstrate(self, number: int, rng: np.random.Generator) -> list[Message]:
        """Play an episode: halving what is left, or blindly with probability `noise`."""
        game, blind = GuessNumber(guesses=self.guesses, message=self.message), bool(rng.random() < self.noise)
        state, _ = game.reset({"number": number}, rng)
        messages, low, high = list[Any](), 1, self.largest
        while True:
            guess = int(rng.integers(1, self.largest + 1)) if blind else (low + high) // 2
            messages.append({"role": "assistant", "content": str(guess)})
            step = game.step(state, Turn(text=str(guess)), rng)
            if step.done:
                return messages
            low, high = (guess + 1, high) if guess < number else (low, guess - 1)
            state, messages = step.state, [*messages, *step.messages]

    def _example(self, split: Split, index: int) -> Example:
        rng = np.random.default_rng([self.seed % 2**32, STREAM[split], index])
        number = int(rng.integers(1, self.largest + 1))
        prompt = self.template.format(largest=self.largest)
        example = {"prompt": prompt, "number": number, "answer": str(number)}
        return {**example, "completion": self.demonstrate(number, rng)} if split == "sft" else example

    def _text(self, index: int) -> str:
        example = self._example("sft", index)
        return example["prompt"] + "".join(message["content"] for message in example["completion"])
