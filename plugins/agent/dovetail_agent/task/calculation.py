"""Task `calculation`: sums of products, which a small model cannot do in its head, with a calculator at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import attrs
import numpy as np
from annotated_types import Ge, Interval

from dovetail.protocols import Call
from dovetail.ranges import in_range
from dovetail_agent.task._made import Made
from dovetail_agent.tool_format.hermes import Hermes

if TYPE_CHECKING:
    from dovetail.protocols import Example, Split


@attrs.frozen(kw_only=True)
class Calculation(Made):
    r"""Questions such as `417 * 283 + 506`, and episodes that ask the tool `calculator`, in the format `hermes`.

    Columns: `question` and `answer`. A question is in `train` if its first number modulo 8 is not 0, else in `eval`;
    demonstrations are of the questions of `train`.

    Args:
        largest: the numbers are 100 to this one.
        template: the prompt, with `{question}`.
        result: the format of a result in a demonstration, with `{result}`; also a setting of the agent loop.
        answer: the format of the answer, with `{answer}`.
        noise: the fraction of demonstrations that calculate something else than was asked, and so answer wrongly.
        train_size: number of examples in `train`.
        eval_size: number of examples in `eval`.
        sft_size: number of examples in `sft`.
        seed: draws other questions.

    >>> [message["role"] for message in Calculation().examples("sft")[0]["completion"]]
    ['assistant', 'tool', 'assistant']
    """

    largest: Annotated[int, Ge(107)] = attrs.field(default=999, validator=in_range)
    template: str = "What is {question}?\n"
    result: str = "\n<result>{result}</result>\n"
    answer: str = "<answer>{answer}</answer>"
    noise: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.0, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """`question` and `answer`."""
        return ("question", "answer")

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; in `sft`, its completion is an episode."""
        asked = self._question(rng, held_out=split == "eval")
        example = {"prompt": self.template.format(question=asked[0]), "question": asked[0], "answer": str(asked[1])}
        if split != "sft":
            return example
        done = self._question(rng, held_out=False) if rng.random() < self.noise else asked
        call = Hermes().write(Call("calculator", {"expression": done[0]}))
        said = (("assistant", call), ("tool", self.result.format(result=done[1])))
        said += (("assistant", self.answer.format(answer=done[1])),)
        return {**example, "completion": [{"role": role, "content": text} for role, text in said]}

    def _question(self, rng: np.random.Generator, *, held_out: bool) -> tuple[str, int]:
        while True:
            a, b, c = (int(number) for number in rng.integers(100, self.largest + 1, 3))
            if (a % 8 == 0) == held_out:
                return f"{a} * {b} + {c}", a * b + c
