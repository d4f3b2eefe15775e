"""Dovetail's built-in agent loops, tools, formats of their calls, and environments. Nothing here imports jax."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.hookspecs import hookimpl


@hookimpl
def dovetail_components(register: Callable[..., None]) -> None:
    """Register the components of this package."""

    def add(kind: str, name: str, attribute: str = "", aliases: tuple[str, ...] = ()) -> None:
        register(kind, name, f"dovetail_agent.{kind}.{name}:{attribute or name}", aliases=aliases)

    add("agent_loop", "react", "React")
    add("agent_loop", "single_turn", "SingleTurn")
    add("agent_loop", "tool_agent", "ToolAgent", aliases=("turns",))
    add("interaction", "frozen_lake", "FrozenLake")
    add("interaction", "guess_number", "GuessNumber")
    add("tool", "calculator")
    add("tool", "faulty_calculator")
    add("tool", "python", "Python")
    add("tool", "search", "Search")
    add("tool_format", "hermes", "Hermes", aliases=("qwen",))
    add("tool_format", "llama3_json", "Llama3Json")
    add("tool_format", "pythonic", "Pythonic", aliases=("gemma", "llama4_pythonic"))
    add("tool_format", "react", "React")
    add("tool_format", "xml", "Xml", aliases=("qwen3_coder",))
    add("task", "calculation", "Calculation")
    add("task", "faulty_tool", "Persistence")
    add("task", "frozen_lake", "Crossing")
    add("task", "guess_number", "Guessing")
    add("task", "local_search", "TwoHops")
