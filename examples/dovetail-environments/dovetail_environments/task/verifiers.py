"""Task `verifiers`: the tasks of a taskset of verifiers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import attrs
from annotated_types import Ge
from dovetail.data import View
from dovetail.errors import ConfigError
from dovetail.protocols import Example, Split
from dovetail.ranges import in_range
from dovetail.registry import declares

from dovetail_environments._replay import written
from dovetail_environments._verifiers import COLUMN, Loaded, conversation, loaded


@declares(settings={"id": "dovetail_letters", "size": 20, "eval_size": 5})
@attrs.frozen(kw_only=True)
class Verifiers:
    """Prompts of an environment of verifiers 0.4; its rewards are the reward `verifiers`, its turns the interaction.

    There are no demonstrations.

    Args:
        id: of the taskset: an installed package, or a module on the path.
        config: of the taskset, its fields by name.
        size: how many tasks are taken, the first ones.
        eval_size: how many of them, again the first ones, are held out for evaluations.

    Raises:
        ConfigError: when examples are read, without verifiers or such a taskset; if its tasks need a sandbox or tools.
    """

    id: str
    config: Mapping[str, Any] = attrs.field(factory=dict)
    size: Annotated[int, Ge(2)] = attrs.field(default=1000, validator=in_range)
    eval_size: Annotated[int, Ge(1)] = attrs.field(default=100, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """Which task it is."""
        return (COLUMN,)

    def examples(self, split: Split) -> Sequence[Example]:
        """Return tasks."""
        found = self._loaded()
        if self.eval_size >= len(found.tasks):
            raise ConfigError(
                f"task.verifiers.eval_size = {self.eval_size} leaves no task to train on: '{self.id}' has"
                f" {len(found.tasks)}"
            )
        numbers = {
            "train": range(self.eval_size, len(found.tasks)),
            "eval": range(self.eval_size),
            "sft": range(0),
        }
        return View(numbers[split], partial(self._example, found))

    def corpus(self) -> Sequence[str]:
        """Return the prompts."""
        return ["\n".join(message["content"] for message in conversation(task)) for task in self._loaded().tasks]

    def _loaded(self) -> Loaded:
        return loaded(self.id, written(self.config), self.size)

    def _example(self, found: Loaded, index: int) -> Example:
        which = {"id": self.id, "config": written(self.config), "size": self.size, "index": index}
        return {"prompt": conversation(found.tasks[index]), COLUMN: json.dumps(which)}
