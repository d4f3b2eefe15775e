"""The base class of tasks over records: it makes prompts and demonstrations from the columns of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

import attrs
from annotated_types import Interval

from dovetail.data import View
from dovetail.errors import DataError
from dovetail.ranges import in_range
from dovetail_task._chat import check_system, conversation, split_reply
from dovetail_task._files import Check, Record, Source, Table, first_columns, held_out, open_table
from dovetail_task._template import check_template

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

CORPUS = 20_000
"""The greatest number of records that a tokenizer is trained on."""


@attrs.frozen(kw_only=True)
class Prompts:
    """A task whose examples are records: subclasses say where these are."""

    NAME: ClassVar[str]

    prompt_column: str = "prompt"
    completion_column: str | None = None
    template: str | None = None
    chat: bool = False
    system: str | None = attrs.field(default=None, validator=check_system())
    eval_share: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.1, validator=in_range)

    @abstractmethod
    def _train_source(self) -> Source:
        """The records to train on."""

    @abstractmethod
    def _eval_source(self) -> Source | None:
        """The records for evaluation; None holds out a share of the others."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both tables except `prompt`, under which examples hold the finished prompt."""
        columns, held = first_columns(self._train_source()), self._eval_source()
        if held is not None:
            also = first_columns(held)
            columns = tuple(column for column in columns if column in also)
        return tuple(column for column in columns if column != "prompt")

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the records of a split, turned into examples on access."""
        if split == "eval":
            return View(self._eval, self._example)
        if split == "train":
            return View(self._train, self._example)
        if self.completion_column is None and _reply(self._train[0][self.prompt_column]) is None:
            raise DataError(
                f"task {self.NAME} has no demonstrations: name their column with"
                f" --set task.{self.NAME}.completion_column=COLUMN, or set sft.steps = 0"
            )
        return View(self._train, self._demonstration)

    def corpus(self) -> Sequence[str]:
        """Return the training prompts, each with its demonstration if there is one."""
        return View(self._train[:CORPUS], self._text)

    @property
    def _train(self) -> Sequence[Record]:
        return self._halves[0] if self._eval_source() is None else self._table

    @cached_property
    def _eval(self) -> Sequence[Record]:
        held = self._eval_source()
        return self._halves[1] if held is None else self._open(held, None)

    @cached_property
    def _halves(self) -> tuple[Sequence[Record], Sequence[Record]]:
        return held_out(self._table, self.eval_share, f"task.{self.NAME}.eval_share")

    @cached_property
    def _table(self) -> Table:
        return self._open(self._train_source(), self.completion_column)

    def _open(self, source: Source, completion: str | None) -> Table:
        text = {self.prompt_column: f"task.{self.NAME}.prompt_column"}
        if completion is not None:
            text[completion] = f"task.{self.NAME}.completion_column"
        if self.template is not None:
            check_template(self.template, first_columns(source), f"task.{self.NAME}.template", must=self.prompt_column)
        return open_table(source, text, self._check_alike(), conversations=True)

    def _check_alike(self) -> Check:
        """Return a check that all prompts are text, or all are conversations of which all or none have a reply."""
        kinds: list[str] = []

        def check(record: Record) -> str | None:
            prompt = record[self.prompt_column]
            is_text = isinstance(prompt, str)
            kind = (
                "text" if is_text else "a conversation" if _reply(prompt) is None else "a conversation with its reply"
            )
            if not kinds:
                kinds.append(kind)
            if self.template is not None and not is_text:
                return f"column {self.prompt_column!r} holds {kind}, but task.{self.NAME}.template is for text"
            if kind != kinds[0]:
                return f"column {self.prompt_column!r} holds {kind}, but the first record holds {kinds[0]}"
            return None

        return check

    def _example(self, record: Record) -> Example:
        prompt = record[self.prompt_column] if self.template is None else self.template.format_map(record)
        if not isinstance(prompt, str):
            prompt = conversation(split_reply(prompt)[0], self.system)
        elif self.chat:
            prompt = conversation(prompt, self.system)
        return {**record, "prompt": prompt}

    def _demonstration(self, record: Record) -> Example:
        return {**self._example(record), "completion": self._completion(record)}

    def _completion(self, record: Record) -> str | None:
        if self.completion_column is not None:
            return record[self.completion_column]
        return _reply(record[self.prompt_column])

    def _text(self, record: Record) -> str:
        prompt = self._example(record)["prompt"]
        text = prompt if isinstance(prompt, str) else "".join(message["content"] + "\n" for message in prompt)
        return text + (self._completion(record) or "")


def _reply(prompt: str | list[dict[str, str]]) -> str | None:
    return None if isinstance(prompt, str) else split_reply(prompt)[1]
