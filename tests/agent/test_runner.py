"""Runs calls of tools: whatever a tool does to end it becomes a result, which the policy reads."""

import pytest

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


@pytest.mark.parametrize(("tool", "text"), [(exits, "error: 3"), (odd, "error: Odd"), (silent, "error: ValueError")])
def test_a_tool_that_ends_otherwise(tool, text):
    runner = Runner(tools=(Tool(name="mine", function=tool, target=tool),), longest=100)
    ran = runner(Call(name="mine", arguments={"n": 1}), None)
    assert (ran.text, ran.at_fault, ran.stop) == (text, True, "")
