"""Prompts that are at hand in Python, as a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dovetail.config.resolved import Choice
from dovetail.errors import DataError
from dovetail.protocols import Example
from dovetail.registry.component import Component, Origin

if TYPE_CHECKING:
    from dovetail.config import Config
    from dovetail.protocols import Split

Prompt = str | Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A text, a conversation (messages with `role` and `content`), or an example: a mapping with a `prompt`, one of these,
and the columns that rewards and environments read."""


@attrs.frozen(kw_only=True)
class Given:
    """A task of the examples that it is given, the same in every split."""

    rows: tuple[Example, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every example has, in the order of the first."""
        first, *others = self.rows
        return tuple(name for name in first if name != "prompt" and all(name in row for row in others))

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples."""
        return self.rows

    def corpus(self) -> Sequence[str]:
        """Return nothing: the policy has its tokenizer."""
        return ()


def with_examples(config: Config, prompts: Sequence[Prompt], what: str) -> Config:
    """Return a config that evaluates these prompts in place of its task's.

    Args:
        config: the config.
        prompts: texts, conversations or examples.
        what: what a message calls them.

    Raises:
        DataError: if there are none, or one is no prompt; the message says which.
    """
    if isinstance(prompts, str | Mapping):
        raise DataError(f"{what} is one prompt, {_shown(prompts)}; give a list of them, [{_shown(prompts)}]")
    rows = tuple(_example(prompt, f"{what}[{index}]") for index, prompt in enumerate(prompts))
    if not rows:
        raise DataError(f"{what} is empty; give at least one prompt")
    component = Component("task", "given", Given, Origin("dovetail", "", __name__))
    choice = Choice(component=component, params={"rows": rows})
    return attrs.evolve(config, choices={**config.choices, "eval.task": choice})


def _example(prompt: Prompt, what: str) -> Example:
    example: Any = prompt if isinstance(prompt, Mapping) else {"prompt": prompt}
    if "prompt" not in example:
        advice = "; a conversation is a list of messages" if "role" in example else ""
        raise DataError(f"{what} has no 'prompt', only {', '.join(map(repr, example))}{advice}")
    said = example["prompt"]
    if isinstance(said, str):
        return dict(example)
    if not isinstance(said, Sequence) or isinstance(said, bytes) or not said:
        raise DataError(f"{what} is {_shown(said)}; a prompt is a text, or a list of messages with role and content")
    for message in said:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise DataError(f"{what} has the message {_shown(message)}; write {{'role': ..., 'content': ...}}")
    return dict(example)


def _shown(value: Any) -> str:
    return f"{value!r:.80}"
