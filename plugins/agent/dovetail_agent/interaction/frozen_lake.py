"""Interaction `frozen_lake`: a walk over a frozen lake with holes, each move a word."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

import attrs
import numpy as np
from annotated_types import Ge

from dovetail.protocols import Example, Message, Step, Turn
from dovetail.ranges import in_range

MOVES: Final = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""In gymnasium's order, in which those beside a move are perpendicular to it."""
HERE, ICE, HOLE, GOAL = "P", ".", "O", "G"
_WORD: Final = re.compile("|".join(MOVES))


class Walk(NamedTuple):
    """The lake, as a string of letters for each row; the player's position; and the number of moves so far."""

    lake: tuple[str, ...]
    place: tuple[int, int] = (0, 0)
    moves: int = 0


@attrs.frozen(kw_only=True)
class FrozenLake:
    """Each turn is a move, the last of the words left, down, right and up in it; the reply is the lake after the move.

    Reaching the goal gives a reward of 1, and stepping into a hole none; both end the episode. A move over the edge, or
    a turn without any of the words, leaves the player in place. The game is gymnasium's `FrozenLake-v1`.

    Args:
        moves: maximum number of moves; the agent loop must allow as many turns.
        slippery: whether a move has the intended direction only with probability 1/3, and each perpendicular direction
            with probability 1/3, as in gymnasium.
        message: the reply to a move; `{lake}` is the lake, with `P` for the player, `O` for holes and `G` for the goal.

    >>> game, rng = FrozenLake(message="{lake}"), np.random.default_rng(0)
    >>> state, _ = game.reset({"lake": "...\\n.O.\\n..G"}, rng)
    >>> print(game.step(state, Turn(text="down"), rng).messages[0]["content"])
    . . .
    P O .
    . . G
    """

    moves: Annotated[int, Ge(1)] = attrs.field(default=8, validator=in_range)
    slippery: bool = False
    message: str = "\n{lake}\n"

    @property
    def columns(self) -> tuple[str, ...]:
        """The lake."""
        return ("lake",)

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Walk, Sequence[Message]]:
        """Begin in the corner; the task's prompt shows the lake."""
        return Walk(tuple(example["lake"].split("\n"))), ()

    def step(self, state: Walk, turn: Turn, rng: np.random.Generator) -> Step:
        """Move."""
        words = _WORD.findall(turn.text)
        after = Walk(state.lake, state.place, state.moves + 1)
        if words:
            after = after._replace(place=moved(state.lake, state.place, self._slipped(words[-1], rng)))
        row, column = after.place
        tile = state.lake[row][column]
        if tile in (HOLE, GOAL):
            return Step(state=after, reward=float(tile == GOAL), done=True, metrics={"moves": after.moves})
        said = {"role": "user", "content": self.message.format(lake=drawn(state.lake, after.place))}
        return Step(state=after, messages=(said,), done=after.moves >= self.moves)

    def _slipped(self, word: str, rng: np.random.Generator) -> str:
        names = tuple(MOVES)
        aside = int(rng.integers(-1, 2)) if self.slippery else 0
        return names[(names.index(word) + aside) % len(names)]

    def anchor(self, state: Walk) -> tuple[tuple[str, ...], tuple[int, int]]:
        """Return the player's position, whatever the number of moves."""
        return state.lake, state.place


def moved(lake: Sequence[str], place: tuple[int, int], word: str) -> tuple[int, int]:
    """Return the place after a move, on the lake."""
    row, column = (old + by for old, by in zip(place, MOVES[word], strict=True))
    return min(max(row, 0), len(lake) - 1), min(max(column, 0), len(lake[0]) - 1)


def drawn(lake: Sequence[str], place: tuple[int, int]) -> str:
    """Return the lake with the player as text; tiles are separated by spaces, so that each is a separate word."""
    return "\n".join(
        " ".join(HERE if (row, column) == place else tile for column, tile in enumerate(tiles))
        for row, tiles in enumerate(lake)
    )


def solution(lake: Sequence[str], place: tuple[int, int] = (0, 0)) -> tuple[str, ...] | None:
    """Return the first of the shortest safe paths to the goal; None if there is none.

    >>> solution(("...", ".O.", "..G")), solution((".O", "OG"))
    (('down', 'down', 'right', 'right'), None)
    """
    ways: dict[tuple[int, int], tuple[str, ...]] = {place: ()}
    waiting = deque([place])
    while waiting:
        here = waiting.popleft()
        for word, there in _steps(lake, here):
            if there not in ways and lake[there[0]][there[1]] != HOLE:
                ways[there] = (*ways[here], word)
                if lake[there[0]][there[1]] == GOAL:
                    return ways[there]
                waiting.append(there)
    return None


def _steps(lake: Sequence[str], place: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    return ((word, moved(lake, place, word)) for word in MOVES)


def solvable(size: int, holes: float, rng: np.random.Generator) -> tuple[str, ...]:
    """Return a `size` x `size` lake with about a fraction `holes` of holes, drawn until there is a safe path."""
    while True:
        tiles = np.where(rng.random((size, size)) < holes, HOLE, ICE)
        tiles[0, 0], tiles[-1, -1] = ICE, GOAL
        lake = tuple("".join(row) for row in tiles)
        if solution(lake):
            return lake
