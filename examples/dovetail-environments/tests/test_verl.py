"""Interaction and tool `verl`: classes with verl's asynchronous protocols."""

import numpy as np
import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Call, Turn
from dovetail_agent.runner import Runner
from dovetail_agent.signature import schema

from dovetail_environments.interaction.verl import Verl
from dovetail_environments.tool.verl import RULER, VerlTool

PATIENCE = {"path": "dovetail_environments.samples:Patience", "config": {"times": 2}, "columns": ("word",)}


def play(world, *texts):
    """Return the steps of an episode."""
    state, said = world.reset({"prompt": "Be polite.", "word": "thanks"}, np.random.default_rng(3))
    assert said == ()
    steps = []
    for number, text in enumerate(texts):
        steps.append(world.step(state, Turn(text=text, number=number), None))
        state = steps[-1].state
    return steps


def test_responses_scores_and_ends_are_the_classes():
    steps = play(Verl(**PATIENCE), "please", "thanks", "thanks")
    assert [step.messages[0]["content"] for step in steps[:2]] == ["0 times, 2 messages", "1 times, 4 messages"]
    assert [step.reward for step in steps] == [0, 0, 1]
    assert [step.done for step in steps] == [False, False, True]
    assert steps[-1].messages == ()
    assert steps[-1].metrics == {"said": 2}


def test_an_episode_that_has_ended_is_finalised_and_old_states_stay_usable():
    world = Verl(**PATIENCE)
    steps = play(world, "thanks", "thanks")
    assert world._interaction.instances == {}
    again = [world.step(steps[0].state, Turn(text="thanks", number=1), None) for _ in range(2)]
    assert [step.reward for step in again] == [1, 1]
    assert Verl(**PATIENCE).step(steps[0].state, Turn(text="no", number=1), None).messages[0]["content"].startswith("1")


def test_a_tool_has_its_schema_and_its_reward():
    (tool,) = VerlTool(path="dovetail_environments.samples:Ruler", schema=RULER).tools()
    assert schema(tool) == RULER
    run = Runner((tool,), 1000)
    short = run(Call("measure", {"text": "abc"}), None)
    assert (short.text, short.reward, short.at_fault) == ("3 letters", 1, False)
    assert run(Call("measure", {"text": "abcd"}), None).reward == 0
    failed = run(Call("measure", {"text": ""}), None)
    assert (failed.text, failed.at_fault) == ("error: there is nothing to measure", True)


def test_settings_reach_the_tool():
    (tool,) = VerlTool(path="dovetail_environments.samples:Ruler", schema=RULER, config={"short": 9}).tools()
    assert Runner((tool,), 1000)(Call("measure", {"text": "abcd"}), None).reward == 1


def test_classes_that_are_not_there():
    with pytest.raises(ConfigError, match=r"interaction.verl.path = '.*:Patient' cannot be loaded: .*Patient"):
        Verl(path="dovetail_environments.samples:Patient")
    with pytest.raises(ConfigError, match=r"tool.verl.path = 'Ruler' cannot be loaded: .*; write 'module:Name'"):
        VerlTool(path="Ruler").tools()
