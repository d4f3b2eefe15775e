"""Prompts from your own file: jsonl, csv or parquet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
from annotated_types import Interval

from dovetail.data import View
from dovetail.errors import DataError
from dovetail.ranges import in_range
from dovetail_task._chat import check_system, conversation, split_reply
from dovetail_task._files import Check, Record, Table, first_columns, held_out, open_table
from dovetail_task._template import check_template

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

CORPUS = 20_000
"""The greatest number of records that a tokenizer is trained on."""


@attrs.frozen(kw_only=True)
class Records:
    r"""Prompts, and demonstrations if there are any, from a file of records, whose suffix gives the format.

    `.jsonl` has one JSON object per line, `.csv` a header line; `.parquet` needs the extra `dovetail[parquet]`. A file
    is read once, on first use: a broken record stops the run there, with file and line. Its records stay on disk
    (parquet: in memory, as Arrow columns), so a large file is not a problem.

    Columns: those of the file's first record, whatever their type; every record must have them. With an `eval_path`,
    those that both files have.

    Args:
        path: the file to train on.
        eval_path: the file for evaluation. None holds out `eval_share` of the records of `path`, chosen by a hash of
            the prompt.
        prompt_column: the column with the prompt: text, or a conversation as a list of
            `{"role": ..., "content": ...}`. If a conversation ends with the assistant's words, these are not part of
            the prompt but the demonstration.
        completion_column: the column with the demonstration, for the `sft` split.
        template: the prompt, made from the columns, such as `'{prompt}\n'`; None takes the column as it is.
        chat: whether text becomes a conversation too, in which the user says it, for the tokenizer's chat template.
        system: the system message of a conversation, unless the column has one.
        eval_share: the fraction held out if there is no `eval_path`.

    Raises:
        DataError: from `columns`, `examples` and `corpus`, for a file that cannot be used.
        ConfigError: for a parameter out of range, or a template with a placeholder that is not a column.
    """

    path: str | None = None
    eval_path: str | None = None
    prompt_column: str = "prompt"
    completion_column: str | None = None
    template: str | None = None
    chat: bool = False
    system: str | None = attrs.field(default=None, validator=check_system("records"))
    eval_share: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.1, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both files except `prompt`, under which examples hold the finished prompt."""
        columns = first_columns(self._path)
        if self.eval_path:
            also = first_columns(_file(self.eval_path))
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
                "task records has no demonstrations: name their column with"
                " --set task.records.completion_column=COLUMN, or set sft.steps = 0"
            )
        return View(self._train, self._demonstration)

    def corpus(self) -> Sequence[str]:
        """Return the training prompts, each with its demonstration if there is one."""
        return View(self._train[:CORPUS], self._text)

    @property
    def _path(self) -> Path:
        if not self.path:
            raise DataError("task records has no data: name a file with --set task.records.path=FILE")
        return _file(self.path)

    @property
    def _train(self) -> Sequence[Record]:
        return self._table if self.eval_path else self._halves[0]

    @cached_property
    def _eval(self) -> Sequence[Record]:
        return self._open(_file(self.eval_path), None) if self.eval_path else self._halves[1]

    @cached_property
    def _halves(self) -> tuple[Sequence[Record], Sequence[Record]]:
        return held_out(self._table, self.eval_share, "task.records.eval_share")

    @cached_property
    def _table(self) -> Table:
        return self._open(self._path, self.completion_column)

    def _open(self, path: Path, completion: str | None) -> Table:
        text = {self.prompt_column: "task.records.prompt_column"}
        if completion is not None:
            text[completion] = "task.records.completion_column"
        if self.template is not None:
            check_template(self.template, first_columns(path), "task.records.template", must=self.prompt_column)
        return open_table(path, text, self._check_alike(), conversations=True)

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
                return f"column {self.prompt_column!r} holds {kind}, but task.records.template is for text"
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


def _file(path: str) -> Path:
    return Path(path).expanduser()
