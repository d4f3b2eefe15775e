"""Convert a tool's signature to a JSON schema, and check a model's arguments against it."""

from __future__ import annotations

import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from dovetail.config.types import Mismatch, fit
from dovetail.errors import ConfigError, nearest
from dovetail.protocols import Call, Tool

STATE: Final = "state"
"""The parameter for the tool's state, which is hidden from the model."""

ONLY: Final = ""
"""The key of an argument that was written without a name."""

_JSON: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
_ARGUMENT: Final = re.compile(r"^\s{4,}(\w+):\s*(.+(?:\n\s{8,}\S.*)*)", re.MULTILINE)


def schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of a tool for a chat template.

    Names and types are those of its positional parameters; an optional one is annotated `... | None`. The descriptions
    are the docstring's first line and its section `Args`.

    Raises:
        ConfigError: if a parameter has no annotation, or one that JSON cannot represent.

    >>> def add(a: int, b: int) -> str:
    ...     "Add two numbers."
    >>> schema(Tool(name="add", function=add, target=add))["function"]["parameters"]["required"]
    ['a', 'b']
    """
    if tool.schema is not None:
        return {"type": "function", "function": {"name": tool.name, **tool.schema}}
    hints, doc = _hints(tool), inspect.getdoc(tool.target) or ""
    said = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(doc.partition("Args:")[2])}
    properties = {
        name: _type(hint, tool.name, name) | ({"description": said[name]} if name in said else {})
        for name, hint in hints.items()
    }
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": doc.split("\n", 1)[0],
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [name for name, hint in hints.items() if not _is_optional(hint)],
            },
        },
    }


def called(tool: Tool, call: Call, state: Any = None) -> Any:
    """Call a tool with a model's arguments and, if it takes one, its state.

    Raises:
        ValueError: if an argument is missing, unknown, of the wrong type, or not a finite number; the message is
            written for the model.
    """
    if tool.schema is None:
        return tool.function(*arguments(tool, call.arguments, state, texts=call.texts))
    wanted = tool.schema.get("parameters", {})
    types = {name: said.get("type", "string") for name, said in wanted.get("properties", {}).items()}
    given = _named(tool, call.arguments, types, wanted.get("required", ()))
    if call.texts:
        given = {name: text if types[name] == "string" else _meant(text) for name, text in given.items()}
    for name, value in given.items():
        _refuse_infinite(tool, name, value)
    return tool.function(**given, **({STATE: state} if has_state(tool) else {}))


def arguments(tool: Tool, given: Mapping[str, Any], state: Any = None, *, texts: bool = False) -> list[Any]:
    """Return a model's arguments in the order of the tool's parameters, including the state if the tool takes one.

    Raises:
        ValueError: as `called`.
    """
    hints = _hints(tool)
    given = _named(tool, given, hints, [name for name, hint in hints.items() if not _is_optional(hint)])
    found = []
    for name, hint in hints.items():
        try:
            value = _fitted(given[name], hint) if texts and name in given else fit(given.get(name), hint)
        except Mismatch as error:
            raise ValueError(f"the argument '{name}' of {tool.name}: {error}") from error
        _refuse_infinite(tool, name, value)
        found.append(value)
    if has_state(tool):
        found.insert(_positional(tool).index(STATE), state)
    return found


def _fitted(text: str, hint: Any) -> Any:
    """Convert a text to the type of its parameter: unchanged if that is a text, otherwise parsed as JSON."""
    try:
        return fit(text, hint)
    except Mismatch:
        return fit(_meant(text), hint)


def _refuse_infinite(tool: Tool, name: str, value: Any) -> None:
    """Refuse what Python reads as a number and JSON does not have, at any depth: few tools are ready for a NaN.

    Raises:
        ValueError: as `called`.
    """
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for each in inner:
        _refuse_infinite(tool, name, each)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the argument '{name}' of {tool.name}: {value} is not a finite number")


def _meant(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    try:
        return words[text.strip()] if text.strip() in words else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _named(
    tool: Tool, given: Mapping[str, Any], known: Mapping[str, Any], needed: Collection[str]
) -> Mapping[str, Any]:
    """Check the names of arguments, and resolve an argument without a name if the tool has a single parameter.

    Raises:
        ValueError: as `called`.
    """
    if ONLY in given:
        only = [*needed] if len(needed) == 1 else [*known]
        if len(only) != 1:
            raise ValueError(f"{tool.name} has {len(only)} arguments, so write their names: {', '.join(known)}")
        given = {only[0]: given[ONLY]}
    for name in given:
        if name not in known:
            raise ValueError(
                f"{tool.name} has no argument '{name}'.{nearest(name, known)} Arguments: {', '.join(known)}"
            )
    for name in needed:
        if name not in given:
            raise ValueError(f"{tool.name} needs the argument '{name}'")
    return given


def has_state(tool: Tool) -> bool:
    """Tell whether a tool keeps state between calls."""
    return STATE in _positional(tool)


def _written(tool: Tool) -> Callable[..., Any]:
    """Return the function that is called: for a class, its `__call__`."""
    return tool.target.__call__ if inspect.isclass(tool.target) else tool.target


def _positional(tool: Tool) -> list[str]:
    parameters = list(inspect.signature(_written(tool)).parameters.values())[inspect.isclass(tool.target) :]
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]


def _hints(tool: Tool) -> dict[str, Any]:
    annotated = typing.get_type_hints(_written(tool))
    positional = [name for name in _positional(tool) if name != STATE]
    for name in positional:
        if name not in annotated:
            raise ConfigError(
                f"tool {tool.name}: its parameter '{name}' has no annotation, which says what the model may write: one"
                f" of str, int, float, bool, list[...], dict, Literal[...]"
            )
    return {name: annotated[name] for name in positional}


def _is_optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _type(hint: Any, tool: str, name: str) -> dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and len(options := [o for o in inner if o is not type(None)]) == 1:
        return _type(options[0], tool, name)
    if origin is typing.Literal:
        return {"type": _JSON[type(inner[0])], "enum": list(inner)}
    if hint in _JSON or origin is dict:
        return {"type": _JSON[origin or hint]}
    if hint is list or origin is list:
        return {"type": "array"} | ({"items": _type(inner[0], tool, name)} if inner else {})
    raise ConfigError(
        f"tool {tool}: its parameter '{name}' is annotated {hint!r}, which a model cannot write as JSON; one of str,"
        " int, float, bool, list[...], dict, Literal[...], each may be '| None'"
    )
