"""Interaction `gymnasium`: environments that change themselves become functions of a state."""

import random

import numpy as np
import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Turn

gymnasium = pytest.importorskip("gymnasium")
from dovetail_environments.interaction.gymnasium import Gymnasium  # noqa: E402

WORDS = ("left", "down", "right", "up")
LAKE = {"id": "FrozenLake-v1", "settings": {"is_slippery": False}, "actions": WORDS}


class Echo(gymnasium.Env):
    """Texts in and out, and it seeds the global generator, as some libraries do."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(40)
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        random.seed(0)
        self.said = [f"hello {seed % 7}"]
        return self.said[0], {}

    def step(self, action):
        self.said.append(f"{action} {random.randrange(1000)}" if action == "draw" else action)
        return " ".join(self.said), float(action == "please"), action == "bye", False, {}


gymnasium.register("Echo-v0", entry_point=Echo, disable_env_checker=True)


def play(world, *texts, rng=None):
    """Return the steps of an episode."""
    state, first = world.reset({}, np.random.default_rng(3) if rng is None else rng)
    steps = []
    for number, text in enumerate(texts):
        steps.append(world.step(state, Turn(text=text, number=number), None))
        state = steps[-1].state
    return first, steps


def test_a_lake_is_shown_and_crossed_by_words_or_numbers():
    world = Gymnasium(**LAKE)
    first, steps = play(world, "I go down.", "1", "right", "right", "down", "right")
    assert first[0]["content"] == "\nSFFF\nFHFH\nFFFH\nHFFG\n"
    assert "\x1b" not in steps[0].messages[0]["content"]
    assert [step.reward for step in steps] == [0, 0, 0, 0, 0, 1]
    assert [step.done for step in steps] == [False] * 5 + [True]
    assert steps[-1].metrics == {"steps": 6}


def test_a_turn_without_an_action_is_told_so_and_the_last_turn_ends_the_episode():
    _, steps = play(Gymnasium(**LAKE, steps=2), "jump", "7")
    assert steps[0].messages[0]["content"] == "\nno such action\n"
    assert steps[0].state.actions == ()
    assert [step.done for step in steps] == [False, True]


def test_old_states_stay_usable_and_the_same_turn_gives_the_same_step():
    world = Gymnasium(id="FrozenLake-v1", actions=WORDS, steps=99)
    _, steps = play(world, "down", "down", "right", "left")
    ahead = steps[0].state
    again = [world.step(ahead, Turn(text="down", number=1), None) for _ in range(3)]
    assert [step.messages for step in again] == [steps[1].messages] * 3
    fresh = Gymnasium(id="FrozenLake-v1", actions=WORDS, steps=99)
    assert fresh.step(ahead, Turn(text="down", number=1), None).messages == steps[1].messages


def test_texts_go_in_as_they_are_and_global_chance_stays_as_it_is():
    random.seed(5)
    expected = random.random()
    random.seed(5)
    _, steps = play(Gymnasium(id="Echo-v0"), " please ", "bye")
    assert random.random() == expected
    assert steps[0].messages[0]["content"].endswith("please\n")
    assert [step.reward for step in steps] == [1, 0]
    assert steps[1].done


def test_what_an_environment_draws_depends_on_its_seed_only():
    world, other = Gymnasium(id="Echo-v0"), Gymnasium(id="Echo-v0")
    _, steps = play(world, "draw", "draw", "draw")
    random.random()
    play(other, "draw", rng=np.random.default_rng(4))
    after = other.step(steps[1].state, Turn(text="draw", number=2), None)
    assert after.messages == steps[2].messages


def test_seeds_are_the_prompts():
    world = Gymnasium(id="Echo-v0")
    shown = {play(world, rng=np.random.default_rng(key))[0][0]["content"] for key in range(100)}
    assert len(shown) == 7
    assert play(world)[0] == play(world)[0]


def test_an_environment_that_is_not_there():
    with pytest.raises(ConfigError, match=r"interaction.gymnasium.id = 'FrozenLak-v1' cannot be made: .*FrozenLake"):
        Gymnasium(id="FrozenLak-v1")
    with pytest.raises(ConfigError, match=r"cannot be made: .*unexpected keyword argument 'size'"):
        Gymnasium(id="FrozenLake-v1", settings={"size": 3})
