"""Prompts from a data set on the Hugging Face hub, or from another source that the `datasets` library reads."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

import attrs
from annotated_types import Ge

from dovetail.errors import ConfigError, DataError
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_task._datasets import DatasetSplit
from dovetail_task._files import Source
from dovetail_task._prompts import Prompts


@declares(files=("path", "files"))
@attrs.frozen(kw_only=True)
class Dataset(Prompts):
    r"""Prompts, and demonstrations if there are any, from a data set read by the `datasets` library.

    A data set is a name on the hub, `openai/gsm8k`, with `@REVISION` for a branch, tag or commit; a folder of files, or
    one written by `save_to_disk`; or one of the library's formats (`json`, `csv`, `parquet`, `text`) with `files`. A
    resumed run uses the same commit as before, which is in its `sources.json`. Token, cache and offline mode are the
    library's: `hf auth login`, `HF_HOME`, `HF_HUB_OFFLINE=1`. Needs the extra `datasets`.

    Columns: those of the data set, or what `select` and `rename` make of them.

    Args:
        path: a name on the hub, a folder, or a format.
        name: which of the data set's configurations, such as `main`.
        files: for a format: the file of each split, `{'train': 'a.jsonl', 'test': 'b.jsonl'}`; names may have `*`.
        split: the split to train on; `train[:5000]` and `train+extra` work too.
        eval_split: the split for evaluation. None holds out `eval_share` of `split`, chosen by a hash of the prompt.
        select: the data set's columns to read; empty: all of them.
        rename: new names for columns, `{'problem': 'prompt'}`; the settings below use the new names.
        streaming: whether to read a split from its beginning, as far as `max_examples`, without downloading the rest.
        max_examples: the number of examples to take from the start of each split; None takes all.
        prompt_column: the column with the prompt: text, or a conversation as a list of
            `{"role": ..., "content": ...}`. If a conversation ends with the assistant's words, these are not part of
            the prompt but the demonstration.
        completion_column: the column with the demonstration, for the `sft` split.
        template: the prompt, made from the columns, such as `'{prompt}\n'`; None takes the column as it is.
        chat: whether text becomes a conversation too, in which the user says it, for the tokenizer's chat template.
        system: the system message of a conversation, unless the column has one.
        eval_share: the fraction held out if there is no `eval_split`.

    Raises:
        DataError: from `columns`, `examples` and `corpus`, for a data set, split or column that cannot be had.
        ConfigError: for a parameter out of range, or a template with a placeholder that is not a column.
    """

    NAME: ClassVar[str] = "dataset"

    path: str | None = None
    name: str | None = None
    files: dict[str, str] = attrs.field(factory=dict)
    split: str = "train"
    eval_split: str | None = None
    select: tuple[str, ...] = ()
    rename: dict[str, str] = attrs.field(factory=dict)
    streaming: bool = False
    max_examples: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)

    def __attrs_post_init__(self) -> None:
        if self.streaming and self.max_examples is None:
            raise ConfigError("task.dataset.streaming = True needs an end: set task.dataset.max_examples")

    def _train_source(self) -> Source:
        return self._of_train

    def _eval_source(self) -> Source | None:
        return self._of_eval

    @cached_property
    def _of_train(self) -> DatasetSplit:
        return self._split(self.split)

    @cached_property
    def _of_eval(self) -> DatasetSplit | None:
        return None if self.eval_split is None else self._split(self.eval_split)

    def _split(self, split: str) -> DatasetSplit:
        if not self.path:
            raise DataError(
                "task dataset has no data: name it with --set task.dataset.path=OWNER/NAME, or a folder or format"
            )
        return DatasetSplit(
            path=self.path,
            config=self.name,
            files=self.files,
            split=split,
            select=self.select,
            rename=self.rename,
            streaming=self.streaming,
            limit=self.max_examples,
        )
