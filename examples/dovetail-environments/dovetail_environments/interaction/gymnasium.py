"""Interaction `gymnasium`: an environment of gymnasium that speaks in text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import attrs
import numpy as np
from annotated_types import Ge
from dovetail.errors import ConfigError
from dovetail.protocols import Example, Message, Step, Turn
from dovetail.ranges import in_range
from dovetail.registry import declares

from dovetail_environments._replay import Opened, Played, Worlds

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@declares(settings={"id": "FrozenLake-v1"})
@attrs.frozen(kw_only=True)
class Gymnasium:
    """Each turn is an action, and the answer is what the environment shows after it.

    An environment of gymnasium is changed by each step; an interaction is a function of its state. So the state is the
    seed and the actions so far: where no environment is open that has just done these, one is made, reset with the seed
    and given the actions again. Episodes can be resumed and branched, and an environment must do the same with the
    same seed and actions; `gymnasium.utils.env_checker` tells. All episodes of a prompt begin with one seed.

    A space of texts takes the turn as it is. Otherwise the action is the last of the words of `actions` in the turn,
    which number it, or the last number in it. A turn without either is answered with `unknown`, and is not a step.

    Args:
        id: of the environment, `FrozenLake-v1`; `module:Name-v0` imports the module first.
        settings: of `gymnasium.make`; `render_mode` is `'ansi'`, unless something else is said.
        actions: words for the actions 0, 1, ...
        steps: turns until an episode is over; the agent loop must allow as many.
        message: what is said; `{shown}` is the text of the observation, or else what the environment renders.
        unknown: what is said to a turn without an action.

    Raises:
        ConfigError: when built, without gymnasium, or without such an environment.
    """

    id: str
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    actions: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    steps: Annotated[int, Ge(1)] = attrs.field(default=16, validator=in_range)
    message: str = "\n{shown}\n"
    unknown: str = "\nno such action\n"
    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, self._acted, _close), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Make the environment once."""
        self._made().close()

    @property
    def columns(self) -> tuple[str, ...]:
        """None: what differs from episode to episode is the seed."""
        return ()

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Played, Sequence[Message]]:
        """Begin with a seed, and show the first observation."""
        state = Played(int(rng.integers(2**31)))
        opened, shown = self._worlds.begun(state)
        self._worlds.keep(state, opened)
        return state, self._said(shown)

    def anchor(self, state: Played) -> Played:
        """Return the state: what has been done, as what is shown may hide something."""
        return state

    def step(self, state: Played, turn: Turn, rng: np.random.Generator) -> Step:
        """Act."""
        over = turn.number + 1 >= self.steps
        opened = self._worlds.at(state)
        if self._action(opened.world, turn.text) is None:
            self._worlds.keep(state, opened)
            return Step(state=state, messages=({"role": "user", "content": self.unknown},), done=over)
        after = state.then(turn.text)
        with opened.chance() as environment:
            observation, reward, ended, cut, _ = self._acted(environment, turn.text)
            shown = _shown(environment, observation)
        done = bool(ended or cut or over)
        if done:
            opened.world.close()
        else:
            self._worlds.keep(after, opened)
        said = () if done else self._said(shown)
        return Step(state=after, messages=said, reward=float(reward), done=done, metrics={"steps": len(after.actions)})

    def _said(self, shown: str) -> tuple[Message, ...]:
        return ({"role": "user", "content": self.message.format(shown=shown)},)

    def _action(self, environment: Any, text: str) -> Any:
        import gymnasium

        if isinstance(environment.action_space, gymnasium.spaces.Text):
            return text.strip()
        words = re.findall("|".join(map(re.escape, self.actions)), text) if self.actions else []
        numbers = [int(number) for number in re.findall(r"\d{1,9}", text)]
        found = self.actions.index(words[-1]) if words else numbers[-1] if numbers else None
        return found if found is not None and environment.action_space.contains(found) else None

    def _begun(self, opened: Opened, state: Played) -> str:
        opened.world = self._made()
        observation, _ = opened.world.reset(seed=state.seed)
        return _shown(opened.world, observation)

    def _acted(self, environment: Any, text: str) -> Any:
        return environment.step(self._action(environment, text))

    def _made(self) -> Any:
        try:
            import gymnasium
        except ImportError as error:
            raise ConfigError(
                "interaction gymnasium needs gymnasium: pip install 'dovetail-environments[gymnasium]'"
            ) from error
        try:
            return gymnasium.make(self.id, **{"render_mode": "ansi"} | dict(self.settings))
        except (gymnasium.error.Error, TypeError, ImportError) as error:
            raise ConfigError(f"interaction.gymnasium.id = '{self.id}' cannot be made: {error}") from error


def _shown(environment: Any, observation: Any) -> str:
    shown = observation if isinstance(observation, str) else environment.render()
    text = "" if shown is None else shown if isinstance(shown, str) else str(observation)
    return _COLOURS.sub("", text).strip("\n")


def _close(environment: Any) -> None:
    environment.close()
