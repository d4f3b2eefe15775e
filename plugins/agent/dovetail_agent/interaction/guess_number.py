"""Interaction `guess_number`: a number is to be guessed, and each guess is answered with higher or lower."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import attrs
import numpy as np
from annotated_types import Ge

from dovetail.protocols import Example, Message, Step, Turn
from dovetail.ranges import in_range

NUMBER: Final = re.compile(r"-?\d{1,18}")


class Hidden(NamedTuple):
    """The number to be guessed, and how many guesses there have been."""

    number: int
    guesses: int = 0


@attrs.frozen(kw_only=True)
class GuessNumber:
    """Each turn is a guess, the last number in it; the answer is `higher`, `lower`, or the end.

    The reward of the turn that guesses right is 1. Whoever halves the numbers that are left needs at most
    ⌈log₂(n + 1)⌉ guesses of n numbers; who never listens is right with probability `guesses`/n.

    Args:
        guesses: how many there are; the agent loop must allow as many turns.
        message: what is said to a wrong guess; `{hint}` is `higher`, `lower`, or `no number`.

    >>> game, rng = GuessNumber(), np.random.default_rng(0)
    >>> state, _ = game.reset({"number": 5}, rng)
    >>> game.step(state, Turn(text="8"), rng).messages[0]["content"], game.step(state, Turn(text="5"), rng).reward
    ('lower', 1.0)
    """

    guesses: Annotated[int, Ge(1)] = attrs.field(default=5, validator=in_range)
    message: str = "{hint}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The number to be guessed."""
        return ("number",)

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Hidden, Sequence[Message]]:
        """Hide the number; the task's prompt says what the game is."""
        return Hidden(int(example["number"])), ()

    def step(self, state: Hidden, turn: Turn, rng: np.random.Generator) -> Step:
        """Answer a guess."""
        found = NUMBER.findall(turn.text)
        guess = int(found[-1]) if found else None
        after = Hidden(state.number, state.guesses + 1)
        if guess == state.number:
            return Step(state=after, reward=1.0, done=True, metrics={"guesses": after.guesses})
        hint = "no number" if guess is None else "higher" if guess < state.number else "lower"
        said = {"role": "user", "content": self.message.format(hint=hint)}
        return Step(state=after, messages=(said,), done=after.guesses >= self.guesses)

    def anchor(self, state: Hidden) -> tuple[int, int]:
        """Return the state: the number of guesses is all that a policy can have changed."""
        return state.number, state.guesses
