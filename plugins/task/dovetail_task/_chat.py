"""Prompts as conversations, for the chat template of a tokenizer.

A task gives text or a conversation. `Tokenizer.render` turns either into the model's text once, when examples are read,
so that length limits, rewards, records and engines never have to deal with conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dovetail.errors import ConfigError

Messages = list[dict[str, Any]]


def conversation(prompt: str | Messages, system: str | None) -> Messages:
    """Return a prompt as a conversation that starts with the system message, unless it has one already.

    >>> conversation("6 * 7?", "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '6 * 7?'}]
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if system is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def split_reply(messages: Messages) -> tuple[Messages, str | None]:
    """Return a conversation without a final turn of the assistant, and the text of that turn or None.

    >>> split_reply([{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}])
    ([{'role': 'user', 'content': '6 * 7?'}], '42')
    """
    if messages[-1]["role"] != "assistant":
        return messages, None
    return messages[:-1], messages[-1]["content"]


def no_conversation(value: Any) -> str | None:
    """Return what is wrong with a list that should be a conversation; None if it is one."""
    for index, message in enumerate(value):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            return f"message {index} is {message!r}; write {{'role': ..., 'content': ...}}"
        if not isinstance(message.get("content"), str):
            return f"message {index} has the content {message.get('content')!r}, not text"
    if not value or not split_reply(value)[0]:
        return f"{value!r} is not a conversation to answer"
    return None


def check_system(task: str | None = None) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return an attrs validator: a system message needs a conversation. A task that is not named has a `NAME`.

    Raises:
        ConfigError: naming both settings.
    """

    def validate(instance: Any, field: attrs.Attribute[Any], value: str | None) -> None:
        if value is not None and not instance.chat:
            name = task or instance.NAME
            raise ConfigError(f"task.{name}.{field.name} needs a conversation: set task.{name}.chat = True")

    return validate
