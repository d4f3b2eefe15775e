"""Prompts and demonstrations as arrays, and the limits on their length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, overload

import attrs
import numpy as np
from jaxtyping import Bool, Int

from dovetail.errors import DataError
from dovetail.protocols import ASSISTANT, Example, Message, Tokenizer

LongTexts = Literal["error", "truncate", "filter"]


@attrs.frozen(kw_only=True)
class Limit:
    """A limit on the length of `column`'s text, the settings that hold it, and what to do with longer ones."""

    column: str
    tokens: int
    setting: str
    action: LongTexts
    action_setting: str
    split: str = ""


@attrs.frozen(kw_only=True)
class LengthReport:
    """How many texts exceed the limit, the longest one, and what was done about them."""

    total: int
    too_long: int
    longest: int
    limit: Limit

    def __str__(self) -> str:
        what = f"{self.limit.split} {self.limit.column}".strip()
        done = {"error": "refused", "truncate": "cut to fit", "filter": "left out"}[self.limit.action]
        return (
            f"{self.too_long} of {self.total} {what}s exceed {self.limit.setting} = {self.limit.tokens}"
            f" (longest {self.longest} tokens): {done}"
        )


@attrs.frozen
class Rendered(Sequence[Example]):
    """A view of a task's examples whose `prompt` is the text that the model gets."""

    examples: Sequence[Example]
    render: Callable[[Example], str]

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return Rendered(self.examples[index], self.render)
        example = self.examples[index]
        return {**example, "prompt": self.render(example)}


@attrs.frozen
class Selected(Sequence[Example]):
    """A view of the examples whose prompts fit."""

    examples: Sequence[Example]
    indices: Int[np.ndarray, "kept"]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return Selected(self.examples, self.indices[index])
        return self.examples[int(self.indices[index])]


def fit(examples: Sequence[Example], tokenizer: Tokenizer, limit: Limit) -> tuple[Sequence[Example], LengthReport]:
    """Measure every text against the limit and act on those beyond it.

    Raises:
        DataError: with action 'error' if a text is too long, with the count and the ways out; or if none is left.
    """
    lengths = np.array([_length(example[limit.column], tokenizer) for example in examples], dtype=np.int64)
    beyond = lengths > limit.tokens
    report = LengthReport(
        total=len(lengths), too_long=int(beyond.sum()), longest=int(lengths.max(initial=0)), limit=limit
    )
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
    return examples, report


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
    """Return how many tokens a text has without its EOS, or an episode without its last one."""
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
    """Return the ids of an episode as they are when it is sampled, and which of them the policy writes.

    Raises:
        DataError: if the messages do not begin and end with the assistant's.
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
        DataError: if one is no text; the message shows it and its prompt.
    """
    found = [example[column] for example in examples]
    for example, answer in zip(examples, found, strict=True):
        if not isinstance(answer, str):
            raise DataError(
                f"the answer in the column '{column}' is {answer!r}, no text; prompt {example['prompt'][:80]!r}. Set"
                " train.answer_column to a column of texts"
            )
    return found
