"""Task `guess_number`: prompts and demonstrations of the interaction of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import attrs
import numpy as np
from annotated_types import Ge, Interval

from dovetail.protocols import Turn
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.interaction.guess_number import GuessNumber
from dovetail_agent.task._made import Made

if TYPE_CHECKING:
    from dovetail.protocols import Example, Message, Split


@declares(
    repeats=True,
    expected_failures={"held_out": "every episode begins with the same words; the number is the environment's secret"},
)
@attrs.frozen(kw_only=True)
class Guessing(Made):
    r"""Numbers to be guessed, uniformly distributed, and demonstrations that use bisection.

    Columns: `number`, which is not in the prompt, and `answer`, the same as text. The splits are drawn independently,
    and contain the same numbers: only the random draws of `eval` are held out.

    Args:
        largest: the numbers are 1 to this one.
        guesses: maximum number of guesses in a demonstration; also a setting of the interaction.
        template: the prompt, with `{largest}`.
        message: the reply to a guess in a demonstration; also a setting of the interaction.
        noise: the fraction of demonstrations that guess blindly, which leaves listening to be learnt.
        train_size: number of examples in `train`.
        eval_size: number of examples in `eval`.
        sft_size: number of examples in `sft`.
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The number to be guessed, and the same as text."""
        return ("number", "answer")

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

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; in `sft`, its completion is an episode."""
        number = int(rng.integers(1, self.largest + 1))
        prompt = self.template.format(largest=self.largest)
        example = {"prompt": prompt, "number": number, "answer": str(number)}
        return {**example, "completion": self.demonstrate(number, rng)} if split == "sft" else example
