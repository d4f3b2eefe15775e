"""Interaction `textarena`: a game of TextArena for one player."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import attrs
import numpy as np
from annotated_types import Ge
from dovetail.errors import ConfigError
from dovetail.protocols import Example, Message, Step, Turn
from dovetail.ranges import in_range
from dovetail.registry import declares

from dovetail_environments._replay import Opened, Played, Worlds


@declares(settings={"id": "GuessTheNumber-v0"})
@attrs.frozen(kw_only=True)
class TextArena:
    """Each turn is a move, and the game replies with the messages that it has added since.

    The reward is the game's outcome, on the last turn. The state is the seed and the moves so far, as in the
    interaction `gymnasium`. TextArena's own wrappers, which format observations and moves, are left out: the policy
    still has what it has read before, so that the observations need no history.

    Args:
        id: of the game, `GuessTheNumber-v0`.
        settings: of `textarena.make`, such as `max_turns`.
        turns: maximum number of turns, invalid moves included; the agent loop must allow as many.
        action: the move; `{text}` is the turn. Most games want a move in brackets: `[{text}]`.
        message: the reply; `{shown}` is the game's messages.

    Raises:
        ConfigError: on construction, without TextArena, without such a game or its data (some need NLTK's word
            lists), or if one player cannot play it.
    """

    id: str
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    turns: Annotated[int, Ge(1)] = attrs.field(default=16, validator=in_range)
    action: str = "{text}"
    message: str = "\n{shown}\n"
    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, self._acted, _close), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Begin the game once."""
        try:
            self._worlds.begun(Played(0))
        except AssertionError as error:
            raise ConfigError(f"interaction.textarena.id = '{self.id}' is not a game for one player: {error}") from None
        except LookupError as error:
            why = " ".join(str(error).strip(" *\n").partition("For more")[0].split())
            raise ConfigError(f"interaction.textarena.id = '{self.id}' needs data that is not there: {why}") from None

    @property
    def columns(self) -> tuple[str, ...]:
        """None: what differs from episode to episode is the seed."""
        return ()

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Played, Sequence[Message]]:
        """Begin a game with a seed, and show its rules."""
        state = Played(int(rng.integers(2**31)))
        opened, shown = self._worlds.begun(state)
        self._worlds.keep(state, opened)
        return state, self._said(shown)

    def anchor(self, state: Played) -> Played:
        """Return the state: what has been done, since the messages may hide something."""
        return state

    def step(self, state: Played, turn: Turn, rng: np.random.Generator) -> Step:
        """Move."""
        opened, after = self._worlds.at(state), state.then(turn.text)
        with opened.chance() as game:
            ended, shown = self._acted(game, turn.text)
        metrics = {"moves": float(game.state.turn)}
        if ended:
            return Step(state=after, reward=float((game.state.rewards or {}).get(0, 0)), done=True, metrics=metrics)
        self._worlds.keep(after, opened)
        return Step(state=after, messages=self._said(shown), done=turn.number + 1 >= self.turns, metrics=metrics)

    def _said(self, shown: str) -> tuple[Message, ...]:
        return ({"role": "user", "content": self.message.format(shown=shown)},)

    def _begun(self, opened: Opened, state: Played) -> str:
        opened.world = self._made()
        opened.world.reset(num_players=1, seed=state.seed)
        return _shown(opened.world)

    def _acted(self, game: Any, text: str) -> tuple[bool, str]:
        ended, _ = game.step(self.action.format(text=text))
        return bool(ended), _shown(game)

    def _made(self) -> Any:
        try:
            import textarena
        except ImportError as error:
            raise ConfigError(
                "interaction textarena needs textarena: pip install 'dovetail-environments[textarena]'"
            ) from error
        try:
            game = textarena.make(self.id, **self.settings)
        except (ValueError, TypeError, ImportError, SyntaxError) as error:
            raise ConfigError(f"interaction.textarena.id = '{self.id}' cannot be made: {error}") from error
        while isinstance(game, textarena.Wrapper):
            game = game.env
        return game


def _shown(game: Any) -> str:
    """Return the game's messages that have not been shown yet."""
    from textarena import ObservationType

    _, messages = game.get_observation()
    return "\n".join(text for _, text, what in messages if what is not ObservationType.PLAYER_ACTION)


def _close(game: Any) -> None:
    """Nothing is open: a game is an object."""
