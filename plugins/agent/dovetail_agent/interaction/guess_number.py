"""Interaction `guess_number`: guess a number, with `higher` or `lower` as the reply to each guess."""

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
    """The number to be guessed, and the number of guesses so far."""

    number: int
    guesses: int = 0


@attrs.frozen(kw_only=True)
class GuessNumber:
    """Each turn is a guess, the last number in it; the reply is `higher`, `lower`, or the end of the episode.

    The turn with the right guess gets a reward of 1. Bisection needs at most ⌈log₂(n + 1)⌉ guesses for n numbers; a
    policy that ignores the replies is right with probability `guesses`/n.

    Args:
        guesses: maximum number of guesses; the agent loop must allow as many turns.
        message: the reply to a wrong guess; `{hint}` is `higher`, `lower`, or `no number`.

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
        """Hide the number; the task's prompt explains the game."""
        return Hidden(int(example["number"])), ()

    def step(self, state: Hidden, turn: Turn, rng: np.random.Generator) -> Step:
        """Reply to a guess."""
        found = NUMBER.findall(turn.text)
        guess = int(found[-1]) if found else None
        after = Hidden(state.number, state.guesses + 1)
        if guess == state.number:
            return Step(state=after, reward=1.0, done=True, metrics={"guesses": after.guesses})
        hint = "no number" if guess is None else "higher" if guess < state.number else "lower"
        said = {"role": "user", "content": self.message.format(hint=hint)}
        return Step(state=after, messages=(said,), done=after.guesses >= self.guesses)

    def anchor(self, state: Hidden) -> tuple[int, int]:
        """Return the number of guesses so far, the only part of the state that the policy changes."""
        return state.number, state.guesses
