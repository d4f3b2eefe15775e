"""Environments of verifiers: how they are loaded, which can be used, and how a completion is scored by them."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.errors import ConfigError, RunError

from dovetail_environments._loading import finished

COLUMN = "verifiers_task"
"""The column that says which task it is: the environment's id and config, and the task's number."""


class Loaded(NamedTuple):
    """An environment with its first tasks."""

    environment: Any
    tasks: tuple[Any, ...]


@functools.cache
def loaded(id: str, config: str, size: int) -> Loaded:
    """Load an environment by the id of its taskset.

    Raises:
        ConfigError: without verifiers, without such a taskset, or if its tasks need more than texts: a sandbox, tools.
    """
    try:
        from verifiers.v1 import load_environment, resolve_env_config
    except ImportError as error:
        raise ConfigError(
            "environments of verifiers need verifiers: pip install 'dovetail-environments[verifiers]'"
        ) from error
    try:
        environment = load_environment(resolve_env_config({"taskset": {"id": id, **json.loads(config)}}))
        tasks = tuple(itertools.islice(environment.taskset, size))
    except (ImportError, ValueError, TypeError, AttributeError, LookupError) as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"verifiers cannot load the taskset '{id}' with {config}: {why}") from error
    if not tasks:
        raise ConfigError(f"the taskset '{id}' of verifiers has no tasks")
    _refuse(id, tasks[0])
    return Loaded(environment, tasks)


def _refuse(id: str, task: Any) -> None:
    """Refuse tasks that need more than a conversation."""
    from verifiers.v1 import Task

    kind = type(task)
    if kind.NEEDS_CONTAINER or kind.setup is not Task.setup or kind.finalize is not Task.finalize:
        raise ConfigError(f"the tasks of '{id}' need a sandbox of verifiers (setup, finalize), which Dovetail has not")
    if kind.toolsets(task.config):
        raise ConfigError(f"the tasks of '{id}' have tool servers; start them with the tool dovetail-environments/mcp")
    for hook in task.hooks("reward"):
        asked = inspect.signature(hook).parameters.get("runtime")
        if asked is not None and asked.default is inspect.Parameter.empty:
            raise ConfigError(f"the reward {hook.__name__} of '{id}' reads verifiers' sandbox, which Dovetail has not")


def named(column: str) -> tuple[Any, Any]:
    """Return the environment and the task that a column names."""
    said = json.loads(column)
    found = loaded(said["id"], said["config"], said["size"])
    return found.environment, found.tasks[said["index"]]


def conversation(task: Any) -> list[dict[str, str]]:
    """Return the task's prompt as messages."""
    system, prompt = task.data.system_prompt, task.data.prompt
    said = [{"role": "system", "content": system}] if system else []
    if isinstance(prompt, str):
        return [*said, {"role": "user", "content": prompt}]
    return [*said, *({"role": each.role, "content": _text(each.content)} for each in prompt or ())]


def traced(task: Any) -> Any:
    """Return an empty trace of a task."""
    from verifiers.v1 import AgentConfig, AgentInfo, Trace, TraceTask

    told = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return Trace(task=told, agent=AgentInfo(config=AgentConfig()))


def add(trace: Any, role: str, text: str) -> Any:
    """Add a message to a trace, one of the assistant as sampled, and return it."""
    from verifiers.v1 import AssistantMessage, MessageNode, UserMessage

    sampled = role == "assistant"
    message = AssistantMessage(content=text) if sampled else UserMessage(content=text)
    parent = len(trace.nodes) - 1 if trace.nodes else None
    trace.nodes.append(MessageNode(message=message, sampled=sampled, parent=parent))
    return message


def scored(tasks: Sequence[Any], completions: Sequence[str]) -> list[Any]:
    """Return the traces of completions of one turn, with the rewards and metrics of their tasks.

    Raises:
        RunError: if a reward raises.
    """
    traces = []
    for task, text in zip(tasks, completions, strict=True):
        trace = traced(task)
        for message in conversation(task):
            add(trace, message["role"], message["content"])
        add(trace, "assistant", text)
        try:
            finished(task.score(trace))
        except Exception as error:
            raise RunError(f"a reward of verifiers failed: {error}") from error
        traces.append(trace)
    return traces


def _text(content: Any) -> str:
    from verifiers.v1.types import content_text

    return content_text(content)
