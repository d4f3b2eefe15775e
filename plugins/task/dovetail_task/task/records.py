"""Prompts from your own files: jsonl, csv or parquet."""

from __future__ import annotations

from typing import ClassVar

import attrs

from dovetail.errors import DataError
from dovetail.registry import declares
from dovetail_task._files import Source, sources_of
from dovetail_task._prompts import Prompts


@declares(files=("path", "eval_path"))
@attrs.frozen(kw_only=True)
class Records(Prompts):
    r"""Prompts, and demonstrations if there are any, from a file of records, whose suffix gives the format.

    `.jsonl` has one JSON object per line, `.csv` a header line; `.parquet` needs the extra `parquet`. A file
    is read once, on first use: a broken record stops the run there, with file and line. Its records stay on disk
    (parquet: in memory, as Arrow columns), so a large file is not a problem.

    Columns: those of the file's first record, whatever their type; every record must have them. With an `eval_path`,
    those that both files have. With several files, those that any of them has, with None in the records of the others,
    and `data_source`, the name of a record's file without its suffix, unless the file has such a column; files of one
    name have their paths below the folder that has all of them. Prompts are drawn from all their records alike.

    Args:
        path: the file to train on, or several.
        eval_path: the file for evaluation, or several. None holds out `eval_share` of the records of `path`, chosen by
            a hash of the prompt.
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

    NAME: ClassVar[str] = "records"

    path: str | tuple[str, ...] | None = None
    eval_path: str | tuple[str, ...] | None = None

    def _train_source(self) -> Source:
        if not self.path:
            raise DataError("task records has no data: name a file with --set task.records.path=FILE")
        return sources_of(self.path, "task.records.path")

    def _eval_source(self) -> Source | None:
        return sources_of(self.eval_path, "task.records.eval_path") if self.eval_path else None
