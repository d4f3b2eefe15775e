"""Converts prompts and demonstrations to arrays, and enforces the limits on their length."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import attrs
import numpy as np
from jaxtyping import Bool, Int

from dovetail.data import View
from dovetail.errors import DataError, DovetailWarning
from dovetail.protocols import ASSISTANT, Example, Message, Tokenizer

LongTexts = Literal["error", "truncate", "filter"]

MEASURED: Final = 10_000
"""The number of texts that are measured before a run begins; all are measured only if long ones must be left out."""
TOLD_EVERY: Final = 100_000


@attrs.frozen(kw_only=True)
class Limit:
    """A limit on the length of the texts in `column`, the names of its settings, and the action for longer texts."""

    column: str
    tokens: int
    setting: str
    action: LongTexts
    action_setting: str
    split: str = ""


@attrs.frozen(kw_only=True)
class LengthReport:
    """The number of texts that exceed the limit among the first `total`, the longest length, and the action taken."""

    total: int
    of: int
    too_long: int
    longest: int
    limit: Limit

    def __str__(self) -> str:
        what = f"{self.limit.split} {self.limit.column}".strip()
        done = {"error": "refused", "truncate": "cut to fit", "filter": "left out"}[self.limit.action]
        measured = f"{self.total}" if self.total == self.of else f"the first {self.total} of {self.of}"
        return (
            f"{self.too_long} of {measured} {what}s exceed {self.limit.setting} = {self.limit.tokens}"
            f" (longest {self.longest} tokens): {done}"
        )


def rendered(examples: Sequence[Example], render: Callable[[Example], str]) -> Sequence[Example]:
    """Return a view of a task's examples whose `prompt` is the text that the model reads."""
    return View(examples, lambda example: {**example, "prompt": render(example)})


@attrs.frozen
class Selected(Sequence[Example]):
    """A view of the examples whose prompts fit."""

    examples: Sequence[Example]
    indices: Int[np.ndarray, "kept"]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Selected(self.examples, self.indices[index])
        return self.examples[int(self.indices[index])]


def fit(
    examples: Sequence[Example], tokenizer: Tokenizer, limit: Limit, shown: Sequence[Example] | None = None
) -> tuple[Sequence[Example], LengthReport]:
    """Compare the lengths of texts with the limit and treat those that are too long.

    Only the first texts of a large task are measured now; with the action 'error' the others are measured when they are
    read, and one that is too long gives its place to the next one with a warning, for an error would end each resumed
    run at the same place. Of a split for evaluation it is an error, as the next one would count twice. With 'filter'
    all texts are measured now, because the order of the examples depends on how many are left.

    Args:
        examples: the examples from which those that fit are returned.
        tokenizer: the run's.
        limit: the limit, and what to do with longer texts.
        shown: the same examples with the texts that are measured, if they are others.

    Raises:
        DataError: with the action 'error' if a text is too long, with the count and the remedies; or if none is left.
    """
    shown = examples if shown is None else shown
    count = len(examples) if limit.action == "filter" else min(len(examples), MEASURED)
    lengths = np.fromiter(_lengths(shown, count, tokenizer, limit), np.int64, count)
    beyond = lengths > limit.tokens
    longest = int(lengths.max(initial=0))
    report = LengthReport(total=count, of=len(examples), too_long=int(beyond.sum()), longest=longest, limit=limit)
    if limit.action == "error" and report.too_long:
        raise DataError(
            f"{report}. Raise {limit.setting} to {report.longest}, or set {limit.action_setting} to 'filter' or"
            " 'truncate'"
        )
    if limit.action == "filter" and report.too_long:
        kept = np.flatnonzero(~beyond)
        if not len(kept):
            raise DataError(f"{report}. None is left")
        return Selected(examples, kept), report
    if limit.action == "error" and count < len(examples):
        return _checked(examples, shown, tokenizer, limit, count), report
    return examples, report


def _checked(
    examples: Sequence[Example], shown: Sequence[Example], tokenizer: Tokenizer, limit: Limit, measured: int
) -> Sequence[Example]:
    """Return a view of examples that measures each text after the first `measured` when it is read."""

    def at(number: int) -> Example:
        while number >= measured:
            example = shown[number]
            if (length := _length(example[limit.column], tokenizer)) <= limit.tokens:
                return example if shown is examples else examples[number]
            what = f"{limit.split} {limit.column}".strip()
            told = (
                f"{what} {number} of {len(examples)} has {length} tokens and exceeds {limit.setting} = {limit.tokens}"
            )
            if limit.split == "eval":
                raise DataError(f"{told}. Raise it, or set {limit.action_setting} to 'filter' or 'truncate'")
            warnings.warn(f"{told}: the next one that fits takes its place", DovetailWarning, stacklevel=2)
            number = (number + 1) % len(examples)
        return examples[number]

    return View(range(len(examples)), at)


def _lengths(examples: Sequence[Example], count: int, tokenizer: Tokenizer, limit: Limit) -> Iterator[int]:
    for number in range(count):
        if number and number % TOLD_EVERY == 0:
            print(f"measuring {limit.split} {limit.column}s: {number} of {count}", file=sys.stderr)
        yield _length(examples[number][limit.column], tokenizer)


def encode(
    texts: Sequence[str], tokenizer: Tokenizer, limit: int
) -> tuple[Int[np.ndarray, "prompt position"], Bool[np.ndarray, "prompt position"]]:
    """Return ids padded on the left to `limit`, and their mask; longer prompts keep their end."""
    tokens = np.full((len(texts), limit), tokenizer.pad_id, np.int32)
    mask = np.zeros((len(texts), limit), bool)
    for row, text in enumerate(texts):
        ids = tokenizer.encode(text)[-limit:]
        tokens[row, limit - len(ids) :] = ids
        mask[row, limit - len(ids) :] = True
    return tokens, mask


def _length(text: str | Sequence[Message], tokenizer: Tokenizer) -> int:
    """Return the number of tokens of a text without its EOS, or of an episode without the last EOS."""
    return len(tokenizer.encode(text) if isinstance(text, str) else encode_turns(text, tokenizer)[0][:-1])


def encode_completions(
    texts: Sequence[str | Sequence[Message]], tokenizer: Tokenizer, limit: int
) -> tuple[Int[np.ndarray, "seq token"], Bool[np.ndarray, "seq token"]]:
    """Return ids with their EOS padded on the right to `limit`, and their mask; longer ones are cut and have no EOS.

    A completion that is a list of messages is an episode: its mask is true on the assistant's turns.
    """
    tokens = np.full((len(texts), limit), tokenizer.pad_id, np.int32)
    mask = np.zeros((len(texts), limit), bool)
    for row, text in enumerate(texts):
        if isinstance(text, str):
            ids, own = [*tokenizer.encode(text), tokenizer.eos_ids[0]], None
        else:
            ids, own = encode_turns(text, tokenizer)
        length = min(len(ids), limit)
        tokens[row, :length] = ids[:length]
        mask[row, :length] = True if own is None else own[:length]
    return tokens, mask


def encode_turns(messages: Sequence[Message], tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Return the ids of an episode as sampling would produce them, and a mask of the policy's tokens.

    Raises:
        DataError: if the first or the last message is not the assistant's.
    """
    if not messages or messages[0]["role"] != ASSISTANT or messages[-1]["role"] != ASSISTANT:
        raise DataError(
            "a demonstration that is a list of messages begins and ends with the assistant's, and has the roles"
            f" {[message.get('role') for message in messages]}"
        )
    ids, mask, between = list[int](), list[bool](), list[Message]()
    for message in messages:
        if message["role"] != ASSISTANT:
            between.append(message)
            continue
        said = tokenizer.bridge(between) if between else []
        own = [*tokenizer.encode(message["content"]), tokenizer.eos_ids[0]]
        ids, mask, between = [*ids, *said, *own], [*mask, *[False] * len(said), *[True] * len(own)], []
    return ids, mask


def answers(examples: Sequence[Example], column: str) -> list[str]:
    """Return the task's answers, the texts in a column.

    Raises:
        DataError: if an answer is not a text; the message shows it and its prompt.
    """
    found = [example[column] for example in examples]
    for example, answer in zip(examples, found, strict=True):
        if not isinstance(answer, str):
            raise DataError(
                f"the answer in the column '{column}' is {answer!r}, no text; prompt {example['prompt'][:80]!r}. Set"
                " train.answer_column to a column of texts"
            )
    return found
