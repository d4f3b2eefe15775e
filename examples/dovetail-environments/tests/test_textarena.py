"""Interaction `textarena`, with games of the library."""

import random

import numpy as np
import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Turn

pytest.importorskip("textarena")
from dovetail_environments.interaction.textarena import TextArena


def play(game, *texts, seed=3):
    """Return the first message, and the steps of an episode."""
    state, first = game.reset({}, np.random.default_rng(seed))
    steps = []
    for number, text in enumerate(texts):
        steps.append(game.step(state, Turn(text=text, number=number), None))
        state = steps[-1].state
    return first[0]["content"], steps


def test_a_number_is_guessed_by_what_the_game_replies():
    game = TextArena(id="GuessTheNumber-v0", action="[{text}]")
    low, high = 1, 20
    state, said = game.reset({}, np.random.default_rng(0))
    assert "between 1 and 20 within 10 turns" in said[0]["content"]
    for number in range(6):
        middle = (low + high) // 2
        step = game.step(state, Turn(text=str(middle), number=number), None)
        if step.done:
            break
        (hint,) = step.messages
        assert hint["content"].strip() in ("The target number is higher.", "The target number is lower.")
        low, high = (middle + 1, high) if "higher" in hint["content"] else (low, middle - 1)
        state = step.state
    assert step.reward == 1
    assert step.messages == ()
    assert step.metrics["moves"] == number + 1


def test_an_invalid_move_is_told_and_the_second_one_loses():
    _, steps = play(TextArena(id="GuessTheNumber-v0"), "five", "six")
    assert "You attempted an invalid move." in steps[0].messages[0]["content"]
    assert [step.done for step in steps] == [False, True]
    assert steps[1].reward == 0


def test_old_states_stay_usable_and_global_chance_stays_as_it_is():
    random.seed(5)
    expected = random.random()
    random.seed(5)
    game, other = (TextArena(id="FrozenLake-v0-random", action="[{text}]") for _ in range(2))
    first, steps = play(game, "down", "right", "right")
    assert random.random() == expected
    again = [other.step(steps[0].state, Turn(text="right", number=1), None) for _ in range(2)]
    assert [step.messages for step in again] == [steps[1].messages] * 2
    assert play(other)[0] == first
    assert len({play(game, seed=seed)[0] for seed in range(5)}) > 1


def test_the_last_turn_ends_the_episode():
    _, steps = play(TextArena(id="GuessTheNumber-v0", action="[{text}]", turns=2), "0", "0")
    assert steps[-1].done


def test_a_game_that_cannot_be_played():
    with pytest.raises(ConfigError, match=r"interaction.textarena.id = 'TicTacToe-v0' is not a game for one player"):
        TextArena(id="TicTacToe-v0")
    with pytest.raises(ConfigError, match=r"id = 'GuessNumber-v0' cannot be made: .*not found"):
        TextArena(id="GuessNumber-v0")
    with pytest.raises(ConfigError, match=r"cannot be made: .*unexpected keyword argument 'size'"):
        TextArena(id="GuessTheNumber-v0", settings={"size": 3})
