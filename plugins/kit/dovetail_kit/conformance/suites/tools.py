"""Claims about tools."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError
from dovetail.protocols import Result, Tool
from dovetail_agent.signature import arguments, schema
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.episodes import STEADY

ANSWERS: Final = (str, int, float, list, dict, Result)
"""What a tool may return; a bool is an int."""


@check("tool", fix="Annotate what the model writes with str, int, float, bool, list[...], dict or Literal[...].")
def can_be_told_of(subject: Subject) -> None:
    """There is a JSON schema of its arguments, with a description.

    The chat template passes it to the model, which could not call the tool without it.
    """
    tool = tool_of(subject)
    try:
        told = schema(tool)["function"]
    except DovetailError as error:
        raise Failed(str(error)) from error
    if not told["description"]:
        raise Failed("its docstring does not begin with a sentence")
    json.dumps(told)


def _example_of(said: Mapping[str, Any], text: str) -> Any:
    """Return a value of a JSON schema's type."""
    if "enum" in said:
        return said["enum"][len(text) % len(said["enum"])]
    plain = {"string": text, "integer": len(text), "number": 0.5 * len(text), "boolean": True, "object": {"a": text}}
    return (
        [_example_of(said.get("items", {"type": "string"}), text)] if said["type"] == "array" else plain[said["type"]]
    )


def tool_of(subject: Subject) -> Tool:
    """Return the tool with its hyperparameters.

    Raises:
        Inapplicable: if it stands for several.
    """
    tool = Tool(name=subject.component.name, function=subject.bind(), target=subject.component.load())
    if hasattr(tool.function, "tools"):
        raise Inapplicable("it stands for the tools of a server, which says what they are")
    return tool


def called(tool: Tool, text: str, state: Any = None, *, empty: bool = False) -> Any:
    """Return what a tool answers, or the exception whose message the model reads; its lists may be empty.

    Raises:
        Failed: if it changes its arguments.
    """
    try:
        types = schema(tool)["function"]["parameters"]["properties"]
        made = {name: _example_of(said, text) for name, said in types.items()}
        made |= {name: [] for name, value in made.items() if empty and isinstance(value, list)}
        given = arguments(tool, made, state)
    except (DovetailError, ValueError) as error:
        raise Inapplicable(f"it cannot be called with made-up arguments: {error}") from error
    before = copy.deepcopy(given)
    try:
        answer = tool.function(*given)
    except (DovetailError, ConnectionError) as error:
        raise Inapplicable(f"it cannot be called here: {error}") from error
    except Exception as error:  # the model reads its message
        answer = error
    if given != before:
        raise Failed(f"it changes its arguments from {before} to {given}")
    return answer


@check(
    "tool",
    when=lambda component: component.declares.get("deterministic", True),
    fix="Keep what an episode must remember in a Result's state, not in the module, and take no clock; or declare"
    " deterministic=False. Return a text, a number, a list, a dict or a Result.",
)
def answers_alike(subject: Subject) -> None:
    """The same first call of an episode gets the same answer whatever was asked before, and changes no argument.

    Episodes are resumed, branched and played again, beside others in the same process. What is neither a text, a
    number, a list, a dict nor a `Result` the model cannot read.
    """
    tool = tool_of(subject)
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    first = [called(tool, text) for text in STEADY]
    for text, answer in zip(STEADY, first, strict=True):
        if not isinstance(answer, (*ANSWERS, Exception)):
            raise Failed(f"called with {text!r} it returns {answer!r}, of type {type(answer).__name__}")
        again = called(tool, text)
        if repr(again) != repr(answer):
            raise Failed(f"called with {text!r} it answers {answer!r}, and later {again!r}")
    if before != (random.getstate(), repr(np.random.get_state())):  # noqa: NPY002
        raise Failed("it draws from a random number generator of the whole process")


@check("tool", fix="Raise an exception whose message says what is wrong with the call, such as ValueError.")
def no_answer_is_nan(subject: Subject) -> None:
    """No number that it answers is NaN, also where it is called with zero, an empty text or an empty list.

    The model reads `nan` as if it were an answer, and a sum that it goes into has none.
    """
    tool = tool_of(subject)
    for text in ("", *STEADY):
        for empty in (False, True):
            answer = called(tool, text, empty=empty)
            if _has_nan(answer.reward if isinstance(answer, Result) else answer):
                raise Failed(f"called with {'empty lists' if empty else repr(text)} it answers {answer!r}")


def _has_nan(answer: Any) -> bool:
    if isinstance(answer, Mapping):
        return any(map(_has_nan, answer.values()))
    if isinstance(answer, list | tuple):
        return any(map(_has_nan, answer))
    return isinstance(answer, float) and bool(np.isnan(answer))


@check(
    "tool",
    reads=["state"],
    fix="Return a new state, Result(text, state=(*state, note)), and leave the one that is given as it is.",
)
def leaves_its_state(subject: Subject) -> None:
    """A call changes neither the state that it is given nor the one that an earlier call has returned.

    Episodes are branched and replayed from their states: notes of one branch would appear in another.
    """
    tool = tool_of(subject)
    state, kept = None, list[tuple[str, Any, Any]]()
    for text in STEADY:
        answer = called(tool, text, state)
        if not isinstance(answer, Result) or answer.state is None:
            continue
        kept.append((text, answer.state, copy.deepcopy(answer.state)))
        state = answer.state
        for said, ours, before in kept:
            if repr(ours) != repr(before):
                raise Failed(f"called with {said!r} it returns the state {before!r}, which a later call makes {ours!r}")
