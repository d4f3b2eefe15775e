"""Runs calls of tools: whatever a tool does to end it becomes a result, which the policy reads."""

import re

import pytest

import dovetail
from dovetail.protocols import Call, Tool
from dovetail_agent.runner import Runner


class Odd(Exception):
    """An error whose message cannot be read."""

    def __str__(self):
        raise RuntimeError("not even a message")


def exits(n: int) -> str:
    raise SystemExit(3)


def odd(n: int) -> str:
    raise Odd


def silent(n: int) -> str:
    raise ValueError


def lacks(n: int) -> str:
    return {}["a key"]


def refuses(n: int) -> str:
    raise ValueError("n is at most 0")


def run(tool):
    runner = Runner(tools=(Tool(name="mine", function=tool, target=tool),), longest=100)
    return runner(Call(name="mine", arguments={"n": 1}), None)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (exits, "error: SystemExit: 3"),
        (odd, "error: Odd"),
        (silent, "error: ValueError"),
        (lacks, "error: KeyError: 'a key'"),
        (refuses, "error: n is at most 0"),
    ],
)
def test_a_tool_that_ends_otherwise(tool, text):
    ran = run(tool)
    assert (ran.text, ran.at_fault, ran.stop) == (text, True, "")
    assert bool(ran.slip) == (tool is lacks)


def nothing(n: int) -> str:
    str(n)


def test_the_author_of_a_registered_tool_is_named():
    line = lacks.__code__.co_firstlineno + 1
    dovetail.register("tool", "lacking", lacks)
    dovetail.register("tool", "nothing", nothing)
    assert re.fullmatch(
        rf"tool\.lacking of session 0 \(.*test_runner\) raised KeyError: 'a key'; the policy reads .* \[{__file__}:{line}\]",
        run(lacks).slip,
    )
    said = r"tool\.nothing of session 0 \(.*test_runner\) returned NoneType; a tool returns a text, .*"
    assert re.fullmatch(rf"{said} \[{__file__}:{nothing.__code__.co_firstlineno}\]", run(nothing).stop)
