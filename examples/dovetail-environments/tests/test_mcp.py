"""Tool `mcp`, against a server that is started over stdin and stdout."""

import sys
from pathlib import Path

import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Call
from dovetail_agent.runner import Runner
from dovetail_agent.signature import schema

from dovetail_environments.tool.mcp import Mcp, server

pytest.importorskip("mcp")
COMMAND = (sys.executable, str(Path(__file__).with_name("server.py")))


@pytest.fixture(scope="module")
def run():
    """Run a call as an agent loop does."""
    tools = {tool.name: tool for tool in Mcp(command=COMMAND, time_limit=60).tools()}
    yield lambda name, **arguments: Runner(tuple(tools.values()), 1000)(Call(name, arguments), None)
    server(COMMAND).close()


@pytest.mark.slow
def test_its_tools_have_the_servers_schemas_and_answer(run):
    (add,) = Mcp(command=COMMAND, only=("add",)).tools()
    told = schema(add)["function"]
    assert (told["name"], told["description"]) == ("add", "Add two numbers.")
    assert told["parameters"]["required"] == ["a"]
    assert run("add", a=2, b=3).text == "5"


@pytest.mark.slow
def test_what_the_model_gets_wrong_it_reads(run):
    assert run("add", c=2).text == "error: add has no argument 'c'. Arguments: a, b"
    wrong = run("add", a="two")
    assert wrong.at_fault
    assert "valid integer" in wrong.text
    refused = run("refuse", why="not today")
    assert refused.at_fault
    assert "not today" in refused.text


@pytest.mark.slow
def test_a_server_that_dies_in_a_call_gives_one_line_and_is_started_again(run):
    gone = run("die")
    assert gone.lost == f"tool die: the MCP server {COMMAND} ended during the call of 'die'"
    assert "\n" not in gone.lost
    assert not gone.at_fault
    assert run("add", a=1).text == "1"


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_given_up(run):
    tool = Mcp(command=COMMAND, only=("wait",), time_limit=1.0)
    run("add", a=1)  # it has started
    late = Runner(tuple(tool.tools()), 1000)(Call("wait", {"seconds": 600}), None)
    assert late.text == "error: no answer within 1 seconds"
    server(COMMAND).close()


@pytest.mark.slow
def test_a_server_that_cannot_be_used_is_refused_when_the_config_is_read():
    with pytest.raises(
        ConfigError, match=r"the MCP server \('no-such-program',\) cannot be started: .*no-such-program"
    ):
        Mcp(command=("no-such-program",)).tools()
    with pytest.raises(ConfigError, match="cannot be started: "):
        Mcp(command=(sys.executable, "-c", "pass"), time_limit=60).tools()
    with pytest.raises(ConfigError, match=r"tool.mcp.only = 'subtract': .* has add, refuse, die, wait"):
        Mcp(command=COMMAND, only=("subtract",)).tools()
