"""Grade-school mathematics in the format of GSM8K."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Ge, Interval

from dovetail.data import View
from dovetail.errors import ConfigError, DataError, listing, nearest
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_task._chat import check_system, conversation
from dovetail_task._files import FORMATS, Record, Table, held_out, open_table, source_of
from dovetail_task._template import check_template

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

TEMPLATES: Final = {
    "instruction": (
        "Solve the problem below. First reason step by step between <reasoning> and </reasoning>, then give the final"
        " number, and nothing else, between <answer> and </answer>.\n\n"
        "Problem: {question}\n"
    ),
    "short": "{question}\n",
}
"""Prompts that can be chosen by name."""

MARK: Final = "####"
"""What separates a solution from the final answer."""

CONFIG: Final = "main"
"""Where `openai/gsm8k` has its files."""

_ANNOTATION = re.compile(r"<<[^<>]*>>")


def _check_template(_: Any, field: attrs.Attribute[Any], value: str) -> None:
    if "{" in value:
        check_template(value, ["question"], f"task.gsm8k.{field.name}", must="question")
    elif value not in TEMPLATES:
        raise ConfigError(
            f"task.gsm8k.{field.name}: unknown template {value!r}.{nearest(value, TEMPLATES)}"
            f" Known: {listing(TEMPLATES)}; or write a text with {{question}}"
        )


def _check_demonstration(_: Any, field: attrs.Attribute[Any], value: str) -> None:
    check_template(value, ["question", "solution", "answer"], f"task.gsm8k.{field.name}", must="answer")


@declares(files=("path",))
@attrs.frozen(kw_only=True)
class Gsm8k:
    r"""Word problems with worked solutions, from files in the format of GSM8K.

    A record holds a `question`, and an `answer` that is the worked solution, `####`, and the final number. Cobbe et
    al. 2021, *Training verifiers to solve math word problems*, section 2.

    Columns: `question`; `answer`, the final number without thousands separators (`1234`); `solution`, the worked
    solution without its calculator annotations (`<<6*7=42>>`).

    Args:
        path: a folder with `train.jsonl` and `test.jsonl` (or .csv, or .parquet, or named like the shard
            `train-00000-of-00001.parquet`), or one file to train on; or a name on the Hugging Face hub, `openai/gsm8k`,
            with `@REVISION` for a branch, tag or commit.
        template: the prompt: `instruction`, which explains the tags; `short`, the question and a line break; or your
            own text with `{question}`.
        chat: whether the prompt is a conversation in which the user says that text, for the tokenizer's chat template.
        system: the system message of that conversation.
        demonstration: the completion of an `sft` example, with `{answer}` and optionally `{solution}` and `{question}`.
        eval_share: without a test file, the fraction of the training file that is held out for evaluation, chosen by
            a hash of the question.
        max_examples: the number of examples to take from the start of each split; None takes all.

    Raises:
        DataError: from `examples` and `corpus`, for files that cannot be used.
        ConfigError: for a parameter out of range or a template with an unknown placeholder.

    >>> split_answer("He has 6*7=<<6*7=42>>42 crates of 30.\n#### 1,260")
    ('He has 6*7=42 crates of 30.', '1260')
    """

    path: str | None = None
    template: str = attrs.field(default="instruction", validator=_check_template)
    chat: bool = False
    system: str | None = attrs.field(default=None, validator=check_system("gsm8k"))
    demonstration: str = attrs.field(
        default="<reasoning>{solution}</reasoning><answer>{answer}</answer>", validator=_check_demonstration
    )
    eval_share: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.1, validator=in_range)
    max_examples: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """`question`, `answer` and `solution`."""
        return ("question", "answer", "solution")

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the problems of a split; `sft` demonstrates those of `train`."""
        records = self._eval if split == "eval" else self._train
        make = self._demonstration if split == "sft" else self._example
        return View(records[: self.max_examples], make)

    def corpus(self) -> Sequence[str]:
        """Return the training prompts with their demonstrations."""
        return View(self._train[: self.max_examples], self._text)

    @cached_property
    def _files(self) -> tuple[Path, Path | None]:
        """The files to train on and to evaluate on."""
        if not self.path:
            raise DataError("task gsm8k has no data: name its folder with --set task.gsm8k.path=FOLDER")
        path = _on_the_hub(self.path) or Path(self.path).expanduser()
        if not path.exists():
            raise DataError(f"'{path}' does not exist; name the folder with --set task.gsm8k.path=FOLDER")
        if path.is_file():
            return path, None
        train = _find(path, "train")
        if train is None:
            found = listing(file.name for file in path.iterdir())
            raise DataError(f"'{path}' does not have a train{listing(FORMATS).replace(', ', '|')}; found: {found}")
        return train, _find(path, "test")

    @property
    def _train(self) -> Sequence[Record]:
        return self._table if self._files[1] else self._halves[0]

    @cached_property
    def _eval(self) -> Sequence[Record]:
        test = self._files[1]
        return _open(test) if test else self._halves[1]

    @cached_property
    def _halves(self) -> tuple[Sequence[Record], Sequence[Record]]:
        return held_out(self._table, self.eval_share, "task.gsm8k.eval_share")

    @cached_property
    def _table(self) -> Table:
        return _open(self._files[0])

    def _example(self, record: Record) -> Example:
        solution, answer = split_answer(record["answer"])
        question = record["question"]
        text = self._prompt(question)
        return {
            "prompt": conversation(text, self.system) if self.chat else text,
            "question": question,
            "answer": answer,
            "solution": solution,
        }

    def _demonstration(self, record: Record) -> Example:
        example = self._example(record)
        return {**example, "completion": self.demonstration.format_map(example)}

    def _prompt(self, question: str) -> str:
        return TEMPLATES.get(self.template, self.template).format(question=question)

    def _text(self, record: Record) -> str:
        example = self._demonstration(record)
        return self._prompt(example["question"]) + example["completion"]


def split_answer(text: str) -> tuple[str, str]:
    """Split at the last `####` into the solution without annotations and the answer without commas."""
    solution, _, answer = text.rpartition(MARK)
    return _ANNOTATION.sub("", solution).strip(), answer.strip().replace(",", "")


def _open(path: Path) -> Table:
    fixed = "a column of GSM8K"
    return open_table(source_of(path), {"question": fixed, "answer": fixed}, _without_answer)


def _without_answer(record: Record) -> str | None:
    _, mark, answer = record["answer"].rpartition(MARK)
    return None if mark and answer.strip() else f"column 'answer' does not end with '{MARK} NUMBER'"


def _on_the_hub(path: str) -> Path | None:
    """Download a data set's files; None if there is such a path here, or it cannot be a name on the hub."""
    from dovetail_model.source.hub import HubName, download

    name = None if Path(path).expanduser().exists() else HubName.parse(path)
    if name is None:
        return None
    folder = download(name, [f"{CONFIG}/*", "train*", "test*"], "dataset")
    return folder / CONFIG if (folder / CONFIG).is_dir() else folder


def _find(folder: Path, name: str) -> Path | None:
    found = sorted(
        file
        for file in folder.iterdir()
        if file.suffix in FORMATS and (file.stem == name or file.stem.startswith(f"{name}-"))
    )
    if len(found) > 1:
        names = listing(file.name for file in found)
        raise DataError(f"'{folder}' has more than one {name} file: {names}; keep only one of them")
    return found[0] if found else None
