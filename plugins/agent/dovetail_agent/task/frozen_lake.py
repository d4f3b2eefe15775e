"""Task `frozen_lake`: solvable lakes, and demonstrations, for the interaction of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from zlib import crc32

import attrs
import numpy as np
from annotated_types import Ge, Interval

from dovetail.protocols import Turn
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.interaction.frozen_lake import MOVES, FrozenLake, drawn, solution, solvable
from dovetail_agent.task._made import Made

if TYPE_CHECKING:
    from dovetail.protocols import Example, Message, Split

HELD_OUT: Final = 8
"""Of so many lakes one is in `eval` alone."""


@declares(repeats=True)
@attrs.frozen(kw_only=True)
class Crossing(Made):
    r"""Lakes with a safe path to the goal, and demonstrations that follow a shortest one.

    Columns: `lake`, and `answer`, the number of moves in a shortest path. One lake in eight is in `eval`, and in no
    other split. There are few lakes of 3 x 3 tiles, so that each occurs often.

    Args:
        size: rows and columns of a lake.
        holes: the approximate fraction of tiles that are holes.
        moves: maximum number of moves in a demonstration; also a setting of the interaction.
        template: the prompt, with `{lake}`.
        message: the reply to a move in a demonstration; also a setting of the interaction.
        noise: the fraction of demonstrations that walk at random.
        train_size: number of examples in `train`.
        eval_size: number of examples in `eval`.
        sft_size: number of examples in `sft`.
        seed: draws other lakes.

    >>> example = Crossing(template="{lake}").examples("train")[0]
    >>> print(example["prompt"])
    P . O
    O . .
    . . G
    >>> example["answer"]
    '4'
    """

    size: Annotated[int, Interval(ge=3, le=16)] = attrs.field(default=3, validator=in_range)
    holes: Annotated[float, Interval(gt=0, le=0.4)] = attrs.field(default=0.3, validator=in_range)
    moves: Annotated[int, Ge(1)] = attrs.field(default=8, validator=in_range)
    template: str = "{lake}\n"
    message: str = "\n{lake}\n"
    noise: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.0, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """`lake` and `answer`."""
        return ("lake", "answer")

    def demonstrate(self, lake: tuple[str, ...], rng: np.random.Generator) -> list[Message]:
        """Cross a lake: by a shortest path or, with probability `noise`, at random."""
        game, blind = FrozenLake(moves=self.moves, message=self.message), bool(rng.random() < self.noise)
        state, _ = game.reset({"lake": "\n".join(lake)}, rng)
        messages = list[Any]()
        while True:
            way = solution(lake, state.place)
            word = str(rng.choice(list(MOVES))) if blind or not way else way[0]
            messages.append({"role": "assistant", "content": word})
            step = game.step(state, Turn(text=word), rng)
            if step.done:
                return messages
            state, messages = step.state, [*messages, *step.messages]

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; in `sft`, its completion is an episode."""
        lake = solvable(self.size, self.holes, rng)
        while (crc32("".join(lake).encode()) % HELD_OUT == 0) != (split == "eval"):
            lake = solvable(self.size, self.holes, rng)
        shortest = solution(lake) or ()
        example = {"prompt": self.template.format(lake=drawn(lake, (0, 0))), "lake": "\n".join(lake)}
        example["answer"] = str(len(shortest))
        return {**example, "completion": self.demonstrate(lake, rng)} if split == "sft" else example
