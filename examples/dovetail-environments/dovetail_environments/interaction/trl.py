"""Interaction `trl`: an environment class written for TRL's `environment_factory`."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
from dovetail.errors import ConfigError
from dovetail.protocols import Example, Message, Result, Step, Tool, Turn
from dovetail.registry import declares
from dovetail_agent.signature import schema

from dovetail_environments._loading import columns_of, finished, load, taken
from dovetail_environments._replay import Opened, Played, Worlds, written

NOT_TOOLS = ("reset", "get_reward")


class Used(NamedTuple):
    """What has been done in an environment, and the reward that has been given for it."""

    played: Played
    rewarded: float = 0.0


@declares(settings={"factory": "dovetail_environments.samples:Vault"}, programs=("factory",), files=("factory",))
@attrs.frozen(kw_only=True)
class Trl:
    """Its public methods are the tools; an episode ends with the first turn that calls none of them.

    The class has a method `reset(**columns)`, which may return a text that the policy reads after the prompt, public
    methods with annotations and a docstring, and a method `get_reward()` unless the rewards come from elsewhere. The
    state is the columns and the calls so far; see the interaction `gymnasium`.

    Departures from TRL:
        `get_reward()` is called after every call, and the turn gets the difference: their sum is what `get_reward()`
        returns last. A policy that is cut off before its last call keeps what it had. The text of `reset` is a message
        after those of the prompt; TRL appends it to the last one. Calls in the last turn that the agent loop allows are
        not run.

    Args:
        factory: the class, `module:Class` or `file.py:Class`, or a function that makes an environment.
        settings: of its constructor.

    Raises:
        ConfigError: on construction, if there is no such class, or it has no `reset` or no tools.
    """

    factory: str
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    _class: Any = attrs.field(
        default=attrs.Factory(lambda self: self._found(), takes_self=True), init=False, eq=False, repr=False
    )
    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, self._acted, _close), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Look at the class."""
        if not callable(getattr(self._class, "reset", None)):
            raise ConfigError(f"interaction.trl.factory = '{self.factory}' has no method 'reset'")
        if not self._names:
            raise ConfigError(f"interaction.trl.factory = '{self.factory}' has no public method that could be a tool")

    @property
    def columns(self) -> tuple[str, ...]:
        """The parameters of `reset` without defaults."""
        return columns_of(self._class.reset)[1:]

    def tools(self) -> list[Tool]:
        """Return a tool for each public method."""
        return [self._tool(name, getattr(self._class, name)) for name in self._names]

    def __call__(self, state: Used, name: str, arguments: dict) -> Result:
        """Call a method of the environment in which these calls have been made."""
        call = (name, json.dumps(arguments, sort_keys=True))
        opened, after = self._worlds.at(state.played), state.played.then(call)
        with opened.chance() as environment:
            said, failed = self._acted(environment, call)
            reward = self._reward(environment)
        self._worlds.keep(after, opened)
        return Result(said, Used(after, reward), failed, reward - state.rewarded)

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Used, Sequence[Message]]:
        """Begin, and show what `reset` returns."""
        state = Played(int(rng.integers(2**31)), row=written(taken(self._class.reset, example)))
        opened, shown = self._worlds.begun(state)
        self._worlds.keep(state, opened)
        return Used(state), () if shown is None else ({"role": "user", "content": str(shown)},)

    def anchor(self, state: Used) -> Played:
        """Return what has been done."""
        return state.played

    def step(self, state: Used, turn: Turn, rng: np.random.Generator) -> Step:
        """End the episode, as the policy has called no tool."""
        opened = self._worlds.at(state.played)
        with opened.chance() as environment:
            reward = self._reward(environment)
        self._worlds.keep(state.played, opened)
        return Step(state=Used(state.played, reward), reward=reward - state.rewarded, done=True)

    def _found(self) -> Any:
        made = load("interaction.trl.factory", self.factory)
        return made if inspect.isclass(made) else type(made(**self.settings))

    @property
    def _names(self) -> list[str]:
        methods = inspect.getmembers(self._class, predicate=inspect.isfunction)
        return [name for name, _ in methods if name not in NOT_TOOLS and not name.startswith("_")]

    def _tool(self, name: str, method: Any) -> Tool:
        bound = method.__get__(object())
        told = schema(Tool(name=name, function=bound, target=bound))["function"]
        told["parameters"]["required"] = list(columns_of(bound))
        shown = {key: told[key] for key in ("description", "parameters")}
        return Tool(name=name, function=functools.partial(_by_name, self, name), target=Trl, schema=shown)

    def _begun(self, opened: Opened, state: Played) -> Any:
        opened.world = load("interaction.trl.factory", self.factory)(**self.settings)
        return finished(opened.world.reset(**json.loads(state.row)))

    def _acted(self, environment: Any, call: Any) -> tuple[str, bool]:
        """Call a method; what it raises is for the policy to read, and the environment stays as it then is."""
        name, arguments = call
        try:
            return str(finished(getattr(environment, name)(**json.loads(arguments)))), False
        except ConnectionError:
            raise
        except Exception as error:
            return f"error: {error or type(error).__name__}", True

    def _reward(self, environment: Any) -> float:
        reward = getattr(environment, "get_reward", None)
        return 0.0 if reward is None else float(finished(reward()))


def _by_name(environment: Trl, name: str, /, state: Used, **arguments: Any) -> Result:
    return environment(state, name, arguments)


def _close(environment: Any) -> None:
    """Close an environment that can be closed; TRL's have no such method."""
    if callable(close := getattr(environment, "close", None)) and not inspect.signature(close).parameters:
        close()
