"""Agent loop `tool_agent`: what follows a turn, why an episode ends, and how failures are attributed."""

import os
import re
import time
from typing import Any

import attrs
import numpy as np
import pytest
from tests.limits import limit_only

import dovetail
from dovetail.errors import ConfigError, DovetailWarning, PluginError, RunError
from dovetail.host.episodes import Generators
from dovetail.protocols import Parsed, Result, Step, Tool
from dovetail_agent.agent_loop.single_turn import SingleTurn
from dovetail_agent.agent_loop.tool_agent import ToolAgent
from dovetail_agent.interaction.guess_number import GuessNumber
from dovetail_agent.tool_format.hermes import Hermes

EOS = 0
ADD = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'


class Letters:
    """A tokenizer of code points; 0 ends a turn."""

    eos_ids = (EOS,)
    pad_id = 0

    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(chr(token) for token in ids if token != EOS)

    def render(self, prompt, tools=None):
        if isinstance(prompt, str):
            return prompt
        return f"{len(tools or ())} tools|" + "|".join(message["content"] for message in prompt)

    def bridge(self, messages):
        return self.encode("".join(f"[{message['role']}:{message['content']}]" for message in messages))


def add(a: int, b: int, *, limit: int = 100) -> int:
    """Add two numbers.

    Args:
        a: the first
            of them.
        b: the other.
    """
    if a + b > limit:
        raise ValueError(f"more than {limit}")
    return a + b


TOOL = Tool(name="add", function=add, target=add)
HERMES = Hermes()
TOOL_AS_OTHER = attrs.evolve(TOOL, name="other")


def begin(
    *,
    tools=(TOOL,),
    interaction=None,
    tool_format=HERMES,
    samples=1,
    examples=({"prompt": "?", "number": 3},),
    **settings,
):
    loop = ToolAgent(**settings).open(Letters(), interaction, tools, tool_format)
    words = np.arange(len(examples) * samples * 2, dtype=np.uint32).reshape(len(examples), samples, 2)
    return loop.begin(examples, samples, Generators(words))


def say(running, text, row=0, *, finish="eos"):
    """Return the text that the policy reads after a turn; None at the end."""
    ids = [*Letters().encode(text), *([EOS] if finish == "eos" else [])]
    (found,) = running.then([row], [ids], [finish])
    return None if found is None else Letters().decode(found)


def end(running):
    return running.result([False] * len(running.episodes))


def test_a_call_is_run_and_its_result_read_until_a_turn_calls_nothing():
    running = begin()
    assert say(running, ADD) == "[tool:3]"
    assert say(running, "It is 3.") is None
    found = end(running)
    assert found.ends.tolist() == ["answered"]
    assert found.tool_calls.tolist() == [1]
    assert found.tool_errors.tolist() == [0]
    assert found.turn_mask[0].tolist() == [True, True] + [False] * 6
    assert [message["role"] for message in found.conversations[0]] == ["assistant", "tool", "assistant"]


def test_calls_of_a_turn_are_run_in_the_order_written_up_to_a_number():
    other = ADD.replace("1", "5")
    assert say(begin(max_calls=2), ADD + other) == "[tool:3][tool:7]"
    said = say(begin(max_calls=1), ADD + other)
    assert said == "[tool:3][tool:error: only the first 1 of 2 calls were run]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<tool_call>{", "error: the call does not end with </tool_call>"),
        ("<tool_call>{</tool_call>", "error: the call is not valid JSON: Expecting property name"),
        ("<tool_call>[]</tool_call>", 'error: a call is a JSON object {"name": "...", "arguments": {...}}'),
        (ADD.replace("add", "ad"), "error: there is no tool 'ad'. Did you mean 'add'? Tools: add"),
        (ADD.replace('"a"', '"c"'), "error: add has no argument 'c'. Arguments: a, b"),
        (ADD.replace('"a": 1, ', ""), "error: add needs the argument 'a'"),
        (ADD.replace("1", '"one"'), "error: the argument 'a' of add: expected int, got 'one'."),
        (ADD.replace("1", "99"), "error: more than 100"),
    ],
)
def test_what_the_policy_gets_wrong_it_reads(text, said):
    running = begin()
    assert say(running, text).removeprefix("[tool:").startswith(said)
    say(running, "")
    assert end(running).tool_errors.tolist() == [1]


def test_calls_that_cannot_be_read_end_an_episode_in_the_long_run():
    running = begin(max_invalid=1)
    assert "error" in say(running, "<tool_call>{")
    assert say(running, "<tool_call>{") is None
    assert end(running).ends.tolist() == ["invalid"]


def test_a_turn_that_comes_to_nothing_is_void():
    """A turn is void with an unparsable call, without text, or without an end; a call that fails is not void."""
    running = begin(interaction=GuessNumber(guesses=9), samples=2, max_invalid=9)
    for text in ("<tool_call>{", "7", "  ", ADD.replace("1", "99")):
        say(running, text)
    say(running, ADD, finish="length")
    say(running, "7", row=1)
    void = end(running).void_turns
    assert void[:, :6].tolist() == [[True, False, True, False, True, False], [False] * 6]


def test_in_the_last_turn_nothing_is_run():
    running = begin(max_turns=2)
    say(running, ADD)
    assert say(running, ADD) is None
    found = end(running)
    assert found.ends.tolist() == ["max_turns"]
    assert found.tool_calls.tolist() == [1]


def test_a_turn_that_is_cut_ends_the_episode():
    running = begin()
    assert say(running, ADD, finish="length") is None
    assert end(running).ends.tolist() == ["turn_cut"]


def test_an_episode_that_does_not_fit_says_so():
    running = begin()
    say(running, ADD)
    assert running.result([True]).ends.tolist() == ["max_tokens"]


def test_a_turn_without_its_end_gets_one():
    running = begin()
    (ids,) = running.then([0], [Letters().encode(ADD)], ["stop"])
    assert ids[0] == EOS
    (ids,) = running.then([0], [[*Letters().encode(ADD), EOS]], ["eos"])
    assert ids[0] != EOS


def test_a_long_result_is_cut_and_says_so():
    wordy = Tool(name="add", function=lambda a, b: "x" * 30, target=add)
    assert say(begin(tools=[wordy], max_result_tokens=4), ADD) == "[tool:xxxx... (26 tokens more)]"


def test_a_result_is_written_as_the_setting_says():
    assert say(begin(result="<{name}={result}>"), ADD) == "[tool:<add=3>]"


def wait(a: int, b: int) -> int:
    """A tool that hangs for some of its arguments."""
    while a == 1:
        time.sleep(0.01)
    return a + b


@pytest.mark.slow
def test_a_tool_that_hangs_is_ended_and_other_calls_are_not(monkeypatch):
    """The time limit applies to each call separately, within a turn and in other episodes."""
    limit_only(monkeypatch, "'a': 1,")
    running = begin(
        tools=[Tool(name="add", function=wait, target=wait)],
        samples=2,
        processes=2,
        time_limit=2.0,
        max_result_tokens=99,
    )
    texts = (ADD.replace("1", "5") + ADD + ADD.replace("1", "6"), ADD.replace("1", "7"))
    ids = [[*Letters().encode(text), EOS] for text in texts]
    first, second = (Letters().decode(found) for found in running.then([0, 1], ids, ["eos", "eos"]))
    assert first == "[tool:7][tool:error: nothing was returned within 2 seconds][tool:8]"
    assert second == "[tool:9]"
    running.then([0, 1], [[EOS], [EOS]], ["eos", "eos"])
    assert end(running).tool_errors.tolist() == [1, 0]


def test_a_tool_keeps_a_state_that_the_model_does_not_see():
    def count(step: int, state: list[int] | None) -> Result:
        """Count."""
        steps = [*(state or ()), step]
        return Result(f"{steps}", state=steps, failed=step == 3)

    tool = Tool(name="add", function=count, target=count)
    running = begin(tools=[tool, TOOL_AS_OTHER], samples=2, max_turns=3, max_result_tokens=99)
    call = ADD.replace('"a": 1, "b": 2', '"step": 1')
    assert say(running, call + call.replace("1", "2")) == "[tool:[1]][tool:[1, 2]]"
    assert say(running, call.replace("1", "5"), row=1) == "[tool:[5]]", "each episode has its own"
    unknown = call.replace('"step"', '"state"')
    assert "error: add has no argument 'state'. Did you mean 'step'? Arguments: step" in say(running, unknown)
    assert say(begin(tools=[tool]), call.replace("1", "3")) == "[tool:[3]]"
    assert running.loop.schemas[0]["function"]["parameters"]["required"] == ["step"]
    assert [episode.errors for episode in running.episodes] == [1, 0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
        ("\ud800!", "?!"),
        (2.5, "2.5"),
        ({"\u00e9": [1]}, '{"\u00e9": [1]}'),
        ("x" * 10**6, "xxxxxxxxxx... (999990 characters more)"),
        ("", ""),
    ],
)
def test_whatever_a_tool_returns_becomes_a_text_that_can_be_read(value, said):
    running = begin(tools=[Tool(name="add", function=lambda a, b: value, target=add)], max_result_tokens=10)
    assert say(running, ADD) == f"[tool:{said}]"


def test_a_tool_that_returns_no_text_ends_the_run():
    running = begin(tools=[Tool(name="add", function=lambda a, b: None, target=add)])
    with pytest.raises(
        RunError, match=r"tool add returned NoneType; a tool returns a .* \[.*test_tool_agent.py:\d+\]$"
    ):
        say(running, ADD)


def test_a_mistake_in_a_tool_is_told_once():
    def careless(a: int, b: int):
        return {}[a]

    running = begin(tools=[Tool(name="add", function=careless, target=careless)], samples=2)
    said = r"^tool add raised KeyError: \d+; the policy reads that as the answer to its call \[.*test_tool_agent\.py:\d+\]$"
    with pytest.warns(DovetailWarning, match=said):
        assert say(running, ADD) == "[tool:error: KeyError: 1]"
    assert say(running, ADD, row=1) == "[tool:error: KeyError: 1]"  # a second warning would be an error here


def test_a_lost_connection_is_nobodys_fault():
    def gone(a, b):
        raise ConnectionError("the server has ended")

    running = begin(tools=[Tool(name="add", function=gone, target=add)], samples=2)
    with pytest.warns(DovetailWarning, match="an episode failed and is left out: tool add: the server has ended"):
        assert say(running, ADD) is None
    say(running, "3", row=1)
    found = end(running)
    assert found.failed.tolist() == [True, False]
    assert found.tool_errors.tolist() == [0, 0]


def test_a_server_brings_several_tools_with_schemas_of_its_own():
    class Server:
        def tools(self):
            parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
            schema = {"description": "Double it.", "parameters": parameters}
            return [Tool(name="double", function=lambda a: 2 * a, target=Server, schema=schema)]

    server = Tool(name="server", function=Server(), target=Server)
    running = begin(tools=[TOOL, server], max_result_tokens=99)
    assert running.loop.schemas[1]["function"] == {"name": "double", **running.loop.toolbox.tools[1].schema}
    double = '<tool_call>{"name": "double", "arguments": {"a": 4}}</tool_call>'
    assert say(running, double) == "[tool:8]"
    assert "double needs the argument 'a'" in say(running, double.replace('"a": 4', ""))
    with pytest.raises(ConfigError, match="two tools of train.tools are called 'add'"):
        begin(tools=[TOOL, TOOL])
    Server.tools = lambda self: []
    with pytest.raises(ConfigError, match="tool server stands for the tools of a server, which has none"):
        begin(tools=[server])


def process(a: int, b: int) -> int:
    """Return the number of the process that runs the tool."""
    return os.getpid()


def test_the_processes_of_one_round_serve_the_next():
    """Otherwise each round would start new ones, which stay until the program ends."""
    running = begin(tools=[Tool(name="add", function=process, target=process)], processes=1, time_limit=60.0)
    assert say(running, ADD) == say(running, ADD) != f"[tool:{os.getpid()}]"


def test_an_interaction_answers_what_calls_nothing_and_gives_rewards_to_turns():
    running = begin(interaction=GuessNumber(guesses=3))
    assert say(running, "8") == "[user:lower]"
    assert say(running, ADD) == "[tool:3]"
    assert say(running, "no idea") == "[user:no number]"
    assert say(running, "3") is None
    found = end(running)
    assert found.turn_rewards[0, :4].tolist() == [0, 0, 0, 1]
    assert found.ends.tolist() == ["done"]
    assert found.states[0].guesses == 3
    assert found.metrics["guesses"].tolist() == [3]


@attrs.frozen(kw_only=True)
class Adrift(GuessNumber):
    """An environment whose anchors are no use."""

    def anchor(self, state):
        return [state.number] if state.guesses else {}[state.number]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (0, r"raised KeyError: 3 \[.*test_tool_agent\.py:\d+\]"),
        (1, r"returned \[3\] from `anchor`; return a value that can be a key, .* \[.*test_tool_agent\.py:\d+\]"),
    ],
)
def test_an_anchor_that_cannot_be_had_is_its_interactions(state, said):
    running = begin(tools=(), interaction=Adrift())
    running.episodes[0].state = running.episodes[0].state._replace(guesses=state)
    with pytest.raises(PluginError, match=f"the interaction {said}"):
        say(running, "1")


def test_equal_states_have_equal_anchors():
    running = begin(interaction=GuessNumber(guesses=3), samples=2)
    for row, text in ((0, "8"), (1, "1"), (0, "2"), (1, "3")):
        say(running, text, row)
    anchors = end(running).anchor_ids
    assert anchors[0, :2].tolist() == anchors[1, :2].tolist()
    assert anchors[0, 0] != anchors[0, 1]
    assert anchors[0, 2] == -1


def test_resets_are_shared_by_a_group_and_added_to_the_prompt():
    @attrs.frozen
    class World:
        columns = ()

        def reset(self, example, rng):
            number = int(rng.integers(1000))
            return number, [{"role": "user", "content": f"{number}"}]

        def step(self, state, turn, rng):
            return Step(state=state, done=True)

    example = {"prompt": [{"role": "user", "content": "go"}]}
    running = begin(interaction=World(), samples=3, examples=(example, example))
    one, other = running.prompts
    assert one != other
    assert one.startswith("1 tools|go|")
    assert [episode.state for episode in running.episodes[:3]] == [running.episodes[0].state] * 3
    plain = begin(interaction=World(), tools=(), examples=({"prompt": "go "},))
    assert plain.prompts == (f"go {plain.episodes[0].state}",)


def test_what_fails_without_the_policys_fault_is_left_out_and_not_zero():
    class Broken(GuessNumber):
        def step(self, state, turn, rng):
            if turn.text == "1":
                raise OSError("no connection")
            return super().step(state, turn, rng)

    running = begin(interaction=Broken(), samples=2)
    said = r"an episode failed and is left out: the interaction raised OSError: no con.* \[.*test_tool_agent.py:\d+\]"
    with pytest.warns(DovetailWarning, match=said):
        assert say(running, "1", 0) is None
    say(running, "3", 1)
    assert end(running).failed.tolist() == [True, False]
    with pytest.warns(DovetailWarning):
        say(alone := begin(interaction=Broken()), "1")
    with pytest.raises(RunError, match="every episode failed"):
        end(alone)


@attrs.frozen(kw_only=True)
class Odd:
    """An interaction that gives back what it is told to, or raises it."""

    begins: Any = (0, ())
    goes_on: Any = None

    def reset(self, example, rng):
        if isinstance(self.begins, Exception):
            raise self.begins
        return self.begins

    def step(self, state, turn, rng):
        if isinstance(self.goes_on, Exception):
            raise self.goes_on
        return self.goes_on


def test_an_interaction_that_is_wrong_is_named_with_its_line():
    dovetail.register("interaction", "odd", Odd)
    mine, at = r"interaction\.odd of \S+ \S+ \(\S+\)", r" \[.*test_tool_agent\.py:\d+\]"
    with pytest.raises(PluginError, match=rf"{mine} returned None from `reset`; return \(state, messages\){at}"):
        begin(interaction=Odd(begins=None))
    with pytest.raises(PluginError, match=rf"{mine} raised KeyError: 'column'{at}"):
        begin(interaction=Odd(begins=KeyError("column")))
    with pytest.raises(PluginError, match=rf"{mine} returned 'hello' from `step`; return a dovetail\.\S*Step{at}"):
        say(begin(interaction=Odd(goes_on="hello")), "1")
    said, mapping = {"role": "user", "content": "on"}, r"\{'role': 'user', 'content': 'on'\}"
    wanted = rf"return a sequence of messages, \(.*TEXT\}},\){at}"
    with pytest.raises(PluginError, match=rf"{mine} returned a state and, as messages, 'hi' from `reset`; {wanted}"):
        begin(interaction=Odd(begins=(0, "hi")))
    for field, value, shown, fix in (
        ("messages", said, mapping, wanted),
        ("messages", "on", "'on'", wanted),
        ("reward", "yes", "'yes'", f"return a number{at}"),
        ("reward", None, "None", f"return a number{at}"),
        ("metrics", {"won": "yes"}, r"\{'won': 'yes'\}", f"return numbers by name{at}"),
    ):
        step = Step(**{"state": 0, "messages": (said,), field: value})
        with pytest.raises(PluginError, match=rf"{mine} returned a Step with {field} = {shown} from `step`; {fix}"):
            say(begin(interaction=Odd(goes_on=step)), "1")
    with pytest.warns(DovetailWarning, match=rf"left out: {mine} raised KeyError: 'missing'{at}"):
        say(begin(interaction=Odd(goes_on=KeyError("missing"))), "1")


def test_loops_and_what_they_need_go_together():
    with pytest.raises(ConfigError, match="nothing that could follow a turn; set train.tools or train.interaction"):
        ToolAgent().open(Letters(), None, (), Hermes())
    with pytest.raises(ConfigError, match="train.tools is set, and train.agent_loop = 'single_turn' never calls it"):
        SingleTurn().open(Letters(), None, [TOOL], Hermes())
    with pytest.raises(ConfigError, match="train.interaction is set"):
        SingleTurn().open(Letters(), GuessNumber(), (), Hermes())
    assert SingleTurn().open(Letters(), None, (), Hermes()) is None


def test_interface():
    assert dovetail.get("agent_loop", "turns").name == "tool_agent"
    assert dovetail.get("agent_loop", "tool_agent").declares["turns"]
    assert not dovetail.get("agent_loop", "single_turn").declares.get("turns")


@attrs.frozen
class Till:
    """An environment with tools that act on its state, the sum so far."""

    columns = ()

    def reset(self, example, rng):
        return 0, ()

    def tools(self):
        schema = {"description": "Pay.", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}
        return [
            Tool(name="pay", function=self.pay, target=Till.pay, schema=schema),
            Tool(name="owed", function=owed, target=owed),
        ]

    def pay(self, state, a):
        return Result(f"paid {a}", state=state + a, reward=0.25)

    def step(self, state, turn, rng):
        return Step(state=state, reward=float(state == 5), done=True)


def owed(state: int) -> Result:
    """What is owed."""
    return Result(str(5 - state), state=state)


def test_an_environment_may_have_tools_that_act_on_its_state_and_give_rewards():
    running = begin(interaction=Till(), samples=2)
    call = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'
    assert say(running, call % ("pay", '{"a": 2}') + call % ("pay", '{"a": 3}')) == "[tool:paid 2][tool:paid 3]"
    assert say(running, ADD) == "[tool:3]"
    assert say(running, call % ("owed", "{}")) == "[tool:0]"
    assert say(running, call % ("owed", "{}"), row=1) == "[tool:5]"
    assert say(running, "That is all.") is None
    assert say(running, "That is all.", row=1) is None
    found = end(running)
    assert found.states == (5, 0)
    assert found.turn_rewards[:, :4].tolist() == [[0.5, 0, 0, 1], [0, 0, 0, 0]]
    assert begin(interaction=Till(), examples=({"prompt": [{"role": "user", "content": "?"}]},)).prompts == (
        "3 tools|?",
    )


@attrs.frozen(kw_only=True)
class Unfit:
    """A format whose `parse` gives what it is told to."""

    answer: Any = None

    def parse(self, text):
        """Return it, or raise it."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def write(self, call):
        """Write nothing."""
        return ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "returned None from `parse`; return a dovetail.protocols.Parsed, of calls or of an error"),
        (Parsed(calls=("add",)), r"returned Parsed\(calls=\('add',\), error=None\) from `parse`; .*"),
        (ValueError("no brackets"), "raised ValueError: no brackets"),
    ],
)
def test_a_format_that_parses_nothing_is_named_with_its_line(answer, said):
    dovetail.register("tool_format", "unfit", Unfit)
    with pytest.raises(PluginError) as caught:
        say(begin(tool_format=Unfit(answer=answer)), ADD)
    assert re.fullmatch(rf"tool_format\.unfit of .* {said} \[.*test_tool_agent\.py:\d+\]", str(caught.value))
