"""Tool `verl`: a tool written for verl, a subclass of its `BaseTool`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import attrs
from dovetail.protocols import Result, Tool
from dovetail.registry import declares

from dovetail_environments._loading import finished, load
from dovetail_environments._replay import written

RULER = {
    "type": "function",
    "function": {
        "name": "measure",
        "description": "Measure a text.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


@declares(
    settings={"path": "dovetail_environments.samples:Ruler", "schema": RULER}, programs=("path",), files=("path",)
)
@attrs.frozen(kw_only=True)
class VerlTool:
    """A tool with verl's protocol: `create`, `execute` and `release` for each call, as in verl's tool agent.

    The response's text is the result, and its reward is added to the turn's. Images and videos are left out. What
    `execute` raises is for the policy to read. verl need not be installed, unless the class imports it.

    Args:
        path: the class, `module:Class` or `file.py:Class`.
        config: its argument `config`.
        schema: its argument `tool_schema`, as in verl's YAML file; None if the class has a schema of its own.
        create_kwargs: of `create`, the same for all episodes: a tool does not see the task's columns.

    Raises:
        ConfigError: if there is no such class.
    """

    path: str
    config: Mapping[str, Any] = attrs.field(factory=dict)
    schema: Mapping[str, Any] | None = None
    create_kwargs: Mapping[str, Any] = attrs.field(factory=dict)

    def __call__(self, arguments: dict) -> Result:
        """Create an instance, execute it, and release it."""
        tool = self._tool()
        made = finished(tool.create(create_kwargs=dict(self.create_kwargs)))
        instance = made[0] if isinstance(made, tuple) else made
        try:
            response, reward, _ = finished(tool.execute(instance, arguments))
        finally:
            finished(tool.release(instance))
        text = response if isinstance(response, str) else (getattr(response, "text", None) or "")
        return Result(text, reward=float(reward or 0))

    def tools(self) -> list[Tool]:
        """Return the tool, with the schema that the class has."""
        function = _plain(self._tool().tool_schema)["function"]
        schema = {key: function[key] for key in ("description", "parameters")}
        return [
            Tool(
                name=function["name"],
                function=functools.partial(_by_name, self),
                target=VerlTool,
                schema=schema,
            )
        ]

    def _tool(self) -> Any:
        return _made(self.path, written(self.config), None if self.schema is None else written(self.schema))


@functools.cache
def _made(path: str, config: str, schema: str | None) -> Any:
    """Return the user's tool, one for all calls in a process, as in verl."""
    return load("tool.verl.path", path)(json.loads(config), None if schema is None else _schema(json.loads(schema)))


def _by_name(tool: VerlTool, /, **arguments: Any) -> Result:
    return tool(arguments)


def _schema(given: Mapping[str, Any]) -> Any:
    """Return a schema as verl's class of it, or else as an object with the same attributes."""
    try:
        from verl.tools.schemas import OpenAIFunctionToolSchema
    except ImportError:
        function = {"parameters": {"type": "object", "properties": {}}} | dict(given["function"])
        return SimpleNamespace(**(dict(given) | {"function": SimpleNamespace(**function)}))
    return OpenAIFunctionToolSchema.model_validate(given)


def _plain(schema: Any) -> dict[str, Any]:
    """Return a schema as a dict again."""
    if callable(dump := getattr(schema, "model_dump", None)):
        return dump(exclude_none=True, exclude_unset=True)
    return schema if isinstance(schema, dict) else {**vars(schema), "function": vars(schema.function)}
