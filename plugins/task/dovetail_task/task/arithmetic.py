"""Generated sums, differences and products with demonstrations."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import partial
from itertools import count
from operator import add, mul, sub
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Ge, Interval

import dovetail
from dovetail.data import View
from dovetail.errors import ConfigError, listing
from dovetail.ranges import in_range
from dovetail_task._chat import check_system, conversation
from dovetail_task._template import check_template

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split

OPERATIONS: Final = ("+", "-", "*")

OWNERS: Final = ("eval", "sft", "sft", "train", "train", "train", "train", "train")
"""Which split owns a question, by its hash modulo the length of this tuple."""

SMALLEST_OPERAND: Final = 9
"""The least `max_operand` at which each operation has questions in every split (a test counts them)."""

CORPUS: Final = 2000
"""Number of demonstrations that a tokenizer is trained on."""


def _known_operations(_: Any, field: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    unknown = [operation for operation in value if operation not in OPERATIONS]
    if unknown or not value:
        raise ConfigError(
            f"task.arithmetic.{field.name} is {value!r}; it must hold at least one of {listing(map(repr, OPERATIONS))}"
        )


def _template_of(must: str, *others: str) -> Any:
    def validate(_: Any, field: attrs.Attribute[Any], value: str) -> None:
        check_template(value, (must, *others), f"task.arithmetic.{field.name}", must=must)

    return validate


@dovetail.declares(repeats=True)
@attrs.frozen(kw_only=True)
class Arithmetic:
    """Generated questions such as `12 + 34`, with a split that is truly held out and demonstrations for a warm start.

    Example `i` of a split is a pure function of (`seed`, split, `i`), so a larger size only appends. The operation and
    both operands, 0 to `max_operand`, are uniform; questions may repeat. In a difference the larger operand comes
    first, so no answer is negative.

    The splits own disjoint sets of questions: `eval` 1/8 of them, `sft` 1/4, `train` 5/8. The owner depends only on the
    question, not on the seed or the order of its operands: if `3 + 4` is in `eval`, no run ever trains on `4 + 3`.

    Columns: `question` (`12 + 34`) and `answer` (`46`); with `pairs` also `chosen` and `rejected`, the demonstrations
    with the right answer and with that to another question.

    Args:
        operations: any of `+`, `-` and `*`.
        max_operand: the difficulty; at least 9, since with less a split might have no questions.
        train_size: examples in `train`.
        eval_size: examples in `eval`.
        sft_size: examples in `sft`.
        template: the prompt, with `{question}`.
        chat: whether the prompt is a conversation in which the user says that text, for the tokenizer's chat template.
        system: the system message of that conversation.
        demonstration: the completion of an `sft` example, with `{answer}` and optionally `{question}` and `{reasoning}`
            (the worked equation, `12 + 34 = 46`).
        noise: the fraction of demonstrations with a wrong answer, namely that to another question. A warm start on them
            teaches the format and leaves the arithmetic to be learnt. The column `answer` is always right.
        pairs: whether the questions of `train` and `eval` have two completions, of which the first is preferred.
        seed: draws another sequence of questions from the same splits.

    Raises:
        ConfigError: for a parameter out of range or a template with an unknown placeholder.

    >>> task = Arithmetic(operations=("+",), template="{question} =")
    >>> task.examples("train")[0]
    {'prompt': '64 + 2 =', 'question': '64 + 2', 'answer': '66'}
    >>> task.examples("sft")[0]["completion"]
    '<reasoning>37 + 94 = 131</reasoning><answer>131</answer>'
    """

    operations: tuple[str, ...] = attrs.field(default=OPERATIONS, validator=_known_operations)
    max_operand: Annotated[int, Ge(SMALLEST_OPERAND)] = attrs.field(default=99, validator=in_range)
    train_size: Annotated[int, Ge(1)] = attrs.field(default=10_000, validator=in_range)
    eval_size: Annotated[int, Ge(1)] = attrs.field(default=500, validator=in_range)
    sft_size: Annotated[int, Ge(1)] = attrs.field(default=2_000, validator=in_range)
    template: str = attrs.field(default="What is {question}?\n", validator=_template_of("question"))
    chat: bool = False
    system: str | None = attrs.field(default=None, validator=check_system("arithmetic"))
    demonstration: str = attrs.field(
        default="<reasoning>{reasoning}</reasoning><answer>{answer}</answer>",
        validator=_template_of("answer", "question", "reasoning"),
    )
    noise: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.0, validator=in_range)
    pairs: bool = False
    seed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """`question` and `answer`, and those of pairs."""
        return ("question", "answer", *("chosen", "rejected") * self.pairs)

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split, which are made on access."""
        sizes = {"train": self.train_size, "eval": self.eval_size, "sft": self.sft_size}
        make = self._demonstration if split == "sft" else partial(self._example, split)
        return View(range(sizes[split]), make)

    def corpus(self) -> Sequence[str]:
        """Return prompts with their demonstrations; their number does not depend on the sizes."""
        return View(range(CORPUS), self._demonstrated_text)

    def _demonstrated_text(self, index: int) -> str:
        example = self._demonstration(index)
        return self.template.format(question=example["question"]) + example["completion"]

    def _demonstration(self, index: int) -> Example:
        drawn = self._draw("sft", index)
        answer = self._another_answer(drawn, "wrong", index) if self._is_noisy(index) else drawn.answer
        return {**self._as_example(drawn), "completion": self._demonstrated(drawn, answer)}

    def _demonstrated(self, drawn: Question, answer: int) -> str:
        return self.demonstration.format(question=drawn.text, reasoning=f"{drawn.text} = {answer}", answer=answer)

    def _example(self, split: Split, index: int) -> Example:
        drawn = self._draw(split, index)
        if not self.pairs:
            return self._as_example(drawn)
        answers = {"chosen": drawn.answer, "rejected": self._another_answer(drawn, "rejected", split, index)}
        return {**self._as_example(drawn), **{name: self._demonstrated(drawn, answers[name]) for name in answers}}

    def _as_example(self, drawn: Question) -> Example:
        text = self.template.format(question=drawn.text)
        prompt = conversation(text, self.system) if self.chat else text
        return {"prompt": prompt, "question": drawn.text, "answer": str(drawn.answer)}

    def _draw(self, split: Split, index: int) -> Question:
        """Draw until the split owns the question: 8 times on average for `eval`, less often for the others."""
        attempts = (self._any_question(split, index, attempt) for attempt in count())
        return next(drawn for drawn in attempts if drawn.owner == split)

    def _any_question(self, *counter: str | int) -> Question:
        operation, first, second = _hashes(self.seed, *counter)
        return Question(
            self.operations[operation % len(self.operations)],
            first % (self.max_operand + 1),
            second % (self.max_operand + 1),
        )

    def _is_noisy(self, index: int) -> bool:
        return _hashes(self.seed, "noise", index)[0] < self.noise * 2**64

    def _another_answer(self, drawn: Question, *counter: str | int) -> int:
        other = attrs.evolve(self._any_question(*counter), operation=drawn.operation).answer
        return other + 1 if other == drawn.answer else other


@attrs.frozen
class Question:
    """One operation on two numbers.

    >>> question = Question("-", 3, 12)
    >>> question.text, question.answer
    ('12 - 3', 9)
    """

    operation: str
    first: int
    second: int

    @property
    def operands(self) -> tuple[int, int]:
        """The numbers in the order in which they are written."""
        low, high = sorted((self.first, self.second))
        return (high, low) if self.operation == "-" else (self.first, self.second)

    @property
    def text(self) -> str:
        """The question as it is written."""
        left, right = self.operands
        return f"{left} {self.operation} {right}"

    @property
    def answer(self) -> int:
        """The right answer."""
        return {"+": add, "-": sub, "*": mul}[self.operation](*self.operands)

    @property
    def owner(self) -> str:
        """The split that owns this question, whatever the order of its operands."""
        low, high = sorted((self.first, self.second))
        return OWNERS[_hashes("owner", self.operation, low, high)[0] % len(OWNERS)]


def _hashes(*counter: str | int) -> tuple[int, int, int]:
    """Return three independent 64-bit integers, the same on every machine and in every version."""
    digest = hashlib.blake2b(repr(counter).encode(), digest_size=24).digest()
    return struct.unpack("<3Q", digest)
