"""Run a tool call, in this process or in one that can be ended."""

from __future__ import annotations

import json
import numbers
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import attrs

from dovetail.errors import DovetailError, PluginError, nearest
from dovetail.protocols import Call, Result, Tool
from dovetail.registry import current, place_of
from dovetail.registry.places import raised_in
from dovetail_agent.signature import called, has_state

SLIPS: Final = (LookupError, TypeError, AttributeError, NameError, AssertionError, ImportError)
"""Exceptions that a tool's author hardly means for the policy; what is meant for it is a `ValueError` or one's own."""


@attrs.frozen
class Ran:
    """The outcome of a call.

    Attributes:
        text: the text that the policy reads.
        at_fault: whether the call failed through the policy's own fault.
        more: the number of characters that were cut off the text.
        state: the tool's state for its next call.
        lost: the reason to exclude the episode, if the call failed through no fault of the policy.
        stop: the reason why the run cannot continue, if any.
        reward: the reward of the call.
        slip: what the tool's author should hear of, if it raised one of `SLIPS`.
    """

    text: str
    at_fault: bool = False
    more: int = 0
    state: Any = None
    lost: str = ""
    stop: str = ""
    reward: float = 0.0
    slip: str = ""


@attrs.frozen(slots=False)
class Runner:
    """Runs calls of these tools; only the first `longest` characters of a result are kept."""

    tools: tuple[Tool, ...]
    longest: int

    @cached_property
    def _by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    def __call__(self, call: Call, state: Any) -> Ran:
        """Run a call with the state of its tool in the episode. It never raises: an exception becomes a result."""
        tool = self._by_name.get(call.name)
        if tool is None:
            known = f"{nearest(call.name, self._by_name)} Tools: {', '.join(self._by_name)}"
            return Ran(f"error: there is no tool '{call.name}'.{known}", at_fault=True)
        try:
            result = called(tool, call, state)
            result = result if isinstance(result, Result) else Result(_text(tool, result), state=state)
        except ConnectionError as error:
            return Ran("", lost=f"tool {tool.name}: {error}", state=state)
        except DovetailError as error:
            return Ran("", stop=str(error))
        except (Exception, SystemExit) as error:
            text = _readable(f"error: {_told(error)}")[: self.longest]
            return Ran(text, True, state=state, slip=_slip(tool, error))
        text, kept = result.text, result.state if has_state(tool) else None
        cut = max(len(text) - self.longest, 0)
        return Ran(_readable(text[: self.longest]), result.failed, cut, kept, reward=float(result.reward))


def said(error: BaseException) -> str:
    """Return an error's message; its type if it has none, or none that can be read."""
    try:
        return f"{error}" or type(error).__name__
    except Exception:
        return type(error).__name__


def _told(error: BaseException) -> str:
    """Return an error as the policy reads it: its message, with its type if that is a word or the name of a key."""
    message, kind = said(error), type(error).__name__
    says_little = isinstance(error, KeyError) or len(message.split()) == 1
    return f"{kind}: {message}" if says_little and message != kind else message


def _slip(tool: Tool, error: BaseException) -> str:
    where = raised_in(tool.target, error) if isinstance(error, SLIPS) else ""
    heard = "the policy reads that as the answer to its call"
    return where and f"{whose(('tool',), tool)} raised {type(error).__name__}: {said(error)}; {heard}{where}"


def whose(kinds: Iterable[str], instance: Any, otherwise: str = "") -> str:
    """Return `KIND.NAME of DISTRIBUTION VERSION (MODULE)` of a tool or instance, or something else if nobody knows."""
    target = instance.target if isinstance(instance, Tool) else type(instance)
    for component in (each for kind in kinds for each in current().components(kind)):
        if component.origin.module in sys.modules:
            with suppress(DovetailError):  # one that cannot be had is another one
                if component.load() is target:
                    return f"{component.label} of {component.origin}"
    return otherwise or f"tool {instance.name}"


def _text(tool: Tool, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, numbers.Number):
        return str(value)
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    wanted = f"a tool returns a text, a number, a list, a dict or a dovetail.protocols.Result{place_of(tool.target)}"
    raise PluginError(f"{whose(('tool',), tool)} returned {type(value).__name__}; {wanted}")


def _readable(text: str) -> str:
    """Return a text without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
