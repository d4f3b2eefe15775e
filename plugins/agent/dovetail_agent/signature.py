"""A tool's signature as a JSON schema, and a model's arguments against it."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from dovetail.config.types import Mismatch, fit
from dovetail.errors import ConfigError, nearest
from dovetail.protocols import Tool

_JSON: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
_ARGUMENT: Final = re.compile(r"^\s{4,}(\w+):\s*(.+(?:\n\s{8,}\S.*)*)", re.MULTILINE)


def schema(tool: Tool) -> dict[str, Any]:
    """Return what a chat template is given of a tool.

    Names and types are those of its positional parameters; an optional one is annotated `... | None`. What the model
    reads about them is the docstring's first line and its section `Args`.

    Raises:
        ConfigError: naming a parameter without an annotation, or of a type that JSON does not have.

    >>> def add(a: int, b: int) -> str:
    ...     "Add two numbers."
    >>> schema(Tool(name="add", function=add, target=add))["function"]["parameters"]["required"]
    ['a', 'b']
    """
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


def arguments(tool: Tool, given: Mapping[str, Any]) -> list[Any]:
    """Return a model's arguments in the order of the tool's parameters.

    Raises:
        ValueError: in words for the model: an argument that is missing, unknown, or of another type.
    """
    hints = _hints(tool)
    for name in given:
        if name not in hints:
            raise ValueError(
                f"{tool.name} has no argument '{name}'.{nearest(name, hints)} Arguments: {', '.join(hints)}"
            )
    found = []
    for name, hint in hints.items():
        if name not in given and not _is_optional(hint):
            raise ValueError(f"{tool.name} needs the argument '{name}'")
        try:
            found.append(fit(given.get(name), hint))
        except Mismatch as error:
            raise ValueError(f"the argument '{name}' of {tool.name}: {error}") from error
    return found


def _hints(tool: Tool) -> dict[str, Any]:
    annotated = typing.get_type_hints(tool.target)
    positional = [
        parameter.name
        for parameter in inspect.signature(tool.target).parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]
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
