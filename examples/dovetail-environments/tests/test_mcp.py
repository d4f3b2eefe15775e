"""Tool `mcp`, against a server that is started over stdin and stdout."""

import re
import sys
from pathlib import Path

import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Call
from dovetail_agent.runner import Runner
from dovetail_agent.signature import schema

from dovetail_environments.tool.mcp import Mcp, server

pytest.importorskip("mcp")
ODD_SERVER = str(Path(__file__).with_name("odd_server.py"))
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


TRIED = (2, 60)
"""Seconds for an answer. What a server does can only be told if it was there in time, for which a busy machine may need
more than the first."""
AT_START = {
    ("start", "garbage"): r"no answer within N seconds; it wrote '\\x00 garbage', which is not a message of MCP$",
    (
        "start",
        "bytes",
    ): "no answer within N seconds; it wrote '\N{REPLACEMENT CHARACTER}{2}', which is not a message",
    ("start", "half"): "no answer within N seconds",
    ("start", "half and dies"): """it wrote '{"jsonrpc": "2.0", "id":', which is not a message""",
    ("start", "never"): "no answer within N seconds$",
    ("start", "line without end"): "it wrote a line of more than 16,777,216 bytes",
    ("start", "lines without end"): r"it wrote 'x{80}\.\.\.', which is not a message",
    ("initialize", "number"): "cannot be started: ",
    ("initialize", "dies"): "cannot be started: ",
    ("tools/list", "number"): "does not list its tools: gave an answer of another form",
    ("tools/list", "again"): "does not list its tools: there are more than 100 pages of them",
    ("tools/list", "never"): "does not list its tools: no answer within N seconds",
    ("tools/list", "dies"): "does not list its tools: ended",
    ("tools/list", "codes"): r"has a tool '\\x1b\[31m\\n'",
    ("tools/list", "schema"): "does not list its tools: gave an answer of another form|arguments of type 5",
}
IN_A_CALL = {
    "garbage": "gave no answer within N seconds; it wrote 'garbage', which is not a message of MCP during the call",
    "number": "gave an answer of another form",
    "half and dies": """ended; it wrote '{"jsonrpc"', which is not a message of MCP during the call of 't'""",
    "gigabytes": "ended; it wrote a line of more than 16,777,216 bytes",
    "surrogate": "it wrote .* which is not a message",
    "stays": "",
    "image": "",
}


def one_line(text: str) -> None:
    assert "\n" not in text
    assert len(text) < 1000


@pytest.mark.slow
@pytest.mark.parametrize(("where", "what"), AT_START)
def test_what_is_no_server_is_refused_in_one_line_and_ended(where, what, capfd):
    command = (sys.executable, ODD_SERVER, where, what)
    for seconds in TRIED:
        with pytest.raises(ConfigError) as refused:
            Mcp(command=command, time_limit=float(seconds)).tools()
        one_line(str(refused.value))
        assert capfd.readouterr().err == "", "nothing is logged"
        server(command).close()
        assert not processes(command)
        if re.search(AT_START[where, what].replace("within N ", f"within {seconds} "), str(refused.value)):
            return
    pytest.fail(str(refused.value))


@pytest.mark.slow
@pytest.mark.parametrize("what", IN_A_CALL)
def test_an_answer_that_is_none_loses_the_call_and_no_more(what, capfd):
    command = (sys.executable, ODD_SERVER, "tools/call", what)
    for seconds in TRIED:
        Mcp(command=command, time_limit=60.0).tools()  # it has started
        (tool,) = Mcp(command=command, time_limit=float(seconds)).tools()
        ran = Runner((tool,), 1000)(Call("t", {}), None)
        one_line(ran.lost + ran.text)
        if found := re.search(IN_A_CALL[what].replace("within N ", f"within {seconds} "), ran.lost):
            break
    assert found, ran.lost
    if what == "stays":
        assert ran.text == f"error: no answer within {seconds} seconds"
    if what == "image":
        assert ran.text == "(image)"
    server(command).close()
    assert capfd.readouterr().err == ""
    assert not processes(command)


def processes(command: tuple[str, ...]) -> list[str]:
    """Return the processes of a command that have not ended."""
    wanted = "\0".join(command).encode()
    return [each.parent.name for each in Path("/proc").glob("[0-9]*/cmdline") if wanted in read(each)]


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
