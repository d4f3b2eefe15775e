"""Run the calls of a turn; in this process, or in one that can be ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs

from dovetail.errors import nearest
from dovetail.protocols import Call, Tool
from dovetail_agent.signature import arguments


@attrs.frozen
class Ran:
    """What the policy reads of a call, and whether it failed by the policy's own fault."""

    text: str
    at_fault: bool = False


@attrs.frozen(slots=False)
class Runner:
    """Runs calls of these tools."""

    tools: tuple[Tool, ...]

    @cached_property
    def _by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    def __call__(self, calls: Sequence[Call]) -> list[Ran]:
        """Run calls in order. Nothing is raised: what a tool raises is for the policy to read."""
        return [self._run(call) for call in calls]

    def _run(self, call: Call) -> Ran:
        tool = self._by_name.get(call.name)
        if tool is None:
            known = f"{nearest(call.name, self._by_name)} Tools: {', '.join(self._by_name)}"
            return Ran(f"error: there is no tool '{call.name}'.{known}", at_fault=True)
        try:
            return Ran(str(tool.function(*arguments(tool, call.arguments))))
        except Exception as error:
            return Ran(f"error: {error}", at_fault=True)
