"""Agent loop `react`: observations in the policy's own text."""

import numpy as np
import pytest
from tests.agent.agent_loop.test_tool_agent import EOS, TOOL, Letters, end

from dovetail.errors import ConfigError
from dovetail.host.episodes import Generators
from dovetail_agent.agent_loop.react import React
from dovetail_agent.agent_loop.tool_agent import ToolAgent
from dovetail_agent.tool_format.hermes import Hermes
from dovetail_agent.tool_format.react import React as Format

ACT = 'Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}'


def begin(prompt="?", **settings):
    loop = React(**settings).open(Letters(), None, (TOOL,), Format())
    return loop.begin([{"prompt": prompt}], 1, Generators(np.arange(2, dtype=np.uint32).reshape(1, 1, 2)))


def say(running, text, finish="eos"):
    ids = [*Letters().encode(text), *([EOS] if finish == "eos" else [])]
    (found,) = running.then([0], [ids], [finish])
    return None if found is None else "".join(chr(token) for token in found)


def test_an_observation_goes_on_in_the_text_until_there_is_an_answer():
    running = begin()
    assert say(running, ACT) == "\nObservation: 3\n"
    assert say(running, ACT, finish="stop") == "\nObservation: 3\n", "no end of turn stands before it"
    assert say(running, "Thought: Done.\nFinal Answer: 3") is None
    found = end(running)
    assert found.ends.tolist() == ["answered"]
    assert found.tool_calls.tolist() == [2]


def test_what_the_policy_has_begun_is_not_repeated():
    assert say(begin(), f"{ACT}\nObservation:", finish="stop") == " 3\n"


def test_what_is_neither_an_action_nor_an_answer_is_told_so():
    running = begin(max_invalid=1)
    assert say(running, "It is 3.").startswith("\nObservation: error: write either 'Action: ...'")
    assert say(running, "It is 3.") is None
    assert end(running).ends.tolist() == ["invalid"]


def test_the_prompt_tells_of_the_tools_and_chat_templates_do_not():
    (plain,) = begin().prompts
    assert plain.endswith("Final Answer: the answer\n\n?")
    assert '"name": "add", "description": "Add two numbers."' in plain
    assert "Action: one of add\n" in plain
    (talk,) = begin([{"role": "user", "content": "go"}]).prompts
    assert talk.startswith("0 tools|You can use these tools:")
    assert talk.endswith("go")
    assert begin(instruction="").prompts == ("?",)


class Guarding(Letters):
    """Letters, of which a text spells out the end as `E`."""

    def as_text(self, value):
        return value.replace("E", "e")


def test_an_observation_and_what_an_environment_adds_end_nothing():
    loop = React().open(Guarding(), None, (TOOL,), Format())
    assert loop.after([], [{"role": "tool", "content": "3E"}]) == Letters().encode("3e")
    assert loop.rendered("E?", [{"role": "user", "content": "E"}]).endswith("E?e")


def test_it_wants_its_own_format():
    with pytest.raises(ConfigError, match="train.agent_loop = 'react' reads calls as lines of text; set train.tool_fo"):
        React().open(Letters(), None, (TOOL,), Hermes())


def test_results_may_be_a_users_where_a_template_knows_no_tools():
    loop = ToolAgent(result_role="user", instruction="[{names}] ").open(Letters(), None, (TOOL,), Hermes())
    running = loop.begin([{"prompt": "?"}], 1, Generators(np.arange(2, dtype=np.uint32).reshape(1, 1, 2)))
    assert running.prompts == ("[add] ?",)
    call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    assert say(running, call) == "[user:3]"
