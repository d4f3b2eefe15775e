"""Interaction `trl`: a class for TRL's `environment_factory` becomes tools that act on a state."""

import random

import numpy as np
import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Call, Turn
from dovetail_agent.runner import Runner
from dovetail_agent.signature import called, schema

from dovetail_environments.interaction.trl import Trl

VAULT = "dovetail_environments.samples:Vault"


def made(seed=3, **settings):
    """Return an environment, its tools by name, and the first state."""
    world = Trl(factory=VAULT, settings=settings)
    return world, {tool.name: tool for tool in world.tools()}, world.reset({"prompt": "?"}, np.random.default_rng(seed))


def test_public_methods_are_tools_and_reset_speaks_first():
    world, tools, (_, said) = made(length=3)
    assert [message["content"] for message in said] == ["A lock with 3 digits."]
    assert sorted(tools) == ["listen", "turn"]
    told = schema(tools["turn"])["function"]
    assert told["description"] == "Turn the lock to a digit."
    assert told["parameters"]["properties"] == {"digit": {"type": "integer", "description": "0 to 9."}}
    assert schema(tools["listen"])["function"]["parameters"]["required"] == []
    assert world.columns == ()


def test_the_rewards_of_an_episode_add_up_to_what_the_environment_returns_last():
    world, tools, (state, _) = made()
    random.seed(state.played.seed)
    digits = [random.randrange(10) for _ in range(2)]
    rewards = []
    for digit in (digits[0], (digits[1] + 1) % 10, *digits):
        result = called(tools["turn"], Call("turn", {"digit": digit}), state)
        state, rewards = result.state, [*rewards, result.reward]
    assert result.text == "open"
    assert rewards == [0.5, -0.5, 0.5, 0.5]
    end = world.step(state, Turn(text="It is open."), None)
    assert end.done
    assert end.reward == 0


def test_old_states_stay_usable_in_another_environment_and_process():
    _, tools, (state, _) = made()
    first = called(tools["turn"], Call("turn", {"digit": 1}), state)
    rest = [called(tools["turn"], Call("turn", {"digit": digit}), first.state) for digit in (2, 2)]
    assert rest[0] == rest[1]
    _, others, _ = made()
    assert called(others["turn"], Call("turn", {"digit": 2}), first.state) == rest[0]


def test_what_an_environment_raises_the_policy_reads_and_can_go_on():
    _, tools, (state, _) = made()
    run = Runner(tuple(tools.values()), 1000)
    wrong = run(Call("turn", {"digit": 10}), state)
    assert wrong.text == "error: there are only the digits 0 to 9"
    assert wrong.at_fault
    assert run(Call("listen", {"times": 2}), wrong.state).text == "tick tick "


class Asynchronous:
    """Reads a column, and everything that it does is a coroutine."""

    def reset(self, number, **kwargs):
        self.number = number

    async def guess(self, number: int) -> str:
        """Guess."""
        self.right = number == self.number
        return "yes" if self.right else "no"

    async def get_reward(self) -> float:
        return float(getattr(self, "right", False))


class Silent:
    def reset(self):
        """Have no tools."""


def test_columns_are_given_to_reset_and_coroutines_are_run():
    world = Trl(factory=f"{__file__}:Asynchronous")
    assert world.columns == ("number",)
    state, said = world.reset({"prompt": "?", "number": 7, "other": [1]}, np.random.default_rng(0))
    assert said == ()
    (guess,) = world.tools()
    found = called(guess, Call("guess", {"number": 7}), state)
    assert (found.text, found.reward) == ("yes", 1)
    with pytest.raises(ConfigError, match="'number', which the environment is given, is not JSON: "):
        world.reset({"number": {7}}, np.random.default_rng(0))


def test_classes_that_cannot_be_used():
    with pytest.raises(ConfigError, match=r"interaction.trl.factory = 'none:None' cannot be loaded: .*'module:Name'"):
        Trl(factory="none:None")
    with pytest.raises(ConfigError, match=r"samples:Ruler' has no method 'reset'"):
        Trl(factory="dovetail_environments.samples:Ruler")
    with pytest.raises(ConfigError, match=r"Silent' has no public method that could be a tool"):
        Trl(factory=f"{__file__}:Silent")
