"""What `docs/agents.md` shows runs: its configs, its tool, its environment, and the episode that is played."""

import io
import re
from pathlib import Path

import pytest

import dovetail
from dovetail.cli import main
from dovetail.protocols import Call, Tool, Turn
from dovetail_agent.signature import called, schema
from dovetail_lab.sweep.columns import check_known_columns

PAGE = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
CONFIGS = re.findall(r"```gin\n(.*?)```", PAGE, re.S)
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture
def names():
    """The names that the code of the page defines."""
    found: dict = {}
    for block in BLOCKS:
        exec(compile(block, "agents.md", "exec", dont_inherit=True), found)
    return found


@pytest.mark.parametrize("text", CONFIGS, ids=["tool_agent", "react"])
def test_its_configs_are_complete(text, tmp_path):
    file = tmp_path / "page.gin"
    file.write_text(text)
    config = dovetail.load(file)
    check_known_columns(config)
    assert config.unused == ()


def test_the_tool_is_described_and_called_as_a_model_does(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("facts.txt").write_text("".join(f"Lake {n} is in Bern.\n" for n in range(5)))
    component = dovetail.register("tool", "look_up", names["look_up"])
    tool = Tool(name="look_up", function=component.bind(facts="facts.txt"), target=component.load())
    parameters = schema(tool)["function"]["parameters"]
    assert parameters["required"] == ["query"]
    assert parameters["properties"]["limit"]["description"] == "how many results; 3 if omitted."
    assert called(tool, Call("look_up", {"query": "bern"})).count("\n") == 2
    assert called(tool, Call("look_up", {"query": "bern", "limit": 1})) == "Lake 0 is in Bern."
    assert called(tool, Call("look_up", {"query": "Rome"})) == "nothing found"


def test_the_environment_is_played_to_its_end(names):
    countdown = dovetail.register("interaction", "countdown", names["Countdown"]).bind()
    state, said = countdown.reset({"start": "2"}, None)
    assert said == ()
    first = countdown.step(state, Turn(text=" 1 "), None)
    assert (first.reward, first.done, first.messages) == (1.0, False, ({"role": "user", "content": "go on"},))
    last = countdown.step(first.state, Turn(text="0"), None)
    assert (last.reward, last.done, last.messages) == (1.0, True, ())
    assert countdown.step(state, Turn(text="7"), None).done


def test_the_episode_that_is_played_is_the_one_shown(monkeypatch, capsys):
    (shown,) = re.findall(r"```text\n\$ dovetail (play \w+)\n(.*?)```", PAGE, re.S)
    typed = re.findall(r"^you> (.*)", shown[1], re.M)
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in typed)))
    assert main(shown[0].split()) == 0
    assert capsys.readouterr().out == shown[1]


WRITTEN = re.findall(
    r"^\| `(\w+)`[^|]* \| `([^|]+)`(?:, the whole turn)? \|", PAGE.partition("| a call |")[2].partition("\n\n")[0], re.M
)


@pytest.mark.parametrize(("name", "call"), WRITTEN, ids=dict(WRITTEN))
def test_a_call_is_read_as_the_table_writes_it(name, call):
    parsed = dovetail.get("tool_format", name).bind().parse(call)
    assert [(each.name, each.arguments) for each in parsed.calls] == [("add", {"a": 1})]
