"""Task `faulty_tool`: the calculations of `calculation`, with a calculator that has to be asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import attrs
from annotated_types import Interval

from dovetail.protocols import Call
from dovetail.ranges import in_range
from dovetail_agent.task.calculation import Calculation
from dovetail_agent.tool.faulty_calculator import faulty_calculator
from dovetail_agent.tool_format.hermes import Hermes

if TYPE_CHECKING:
    import numpy as np

    from dovetail.protocols import Example, Message, Split

GIVES_UP = "unknown"


@attrs.frozen(kw_only=True)
class Persistence(Calculation):
    r"""Questions such as `417 * 283 + 506`, and episodes that ask the tool `faulty_calculator` until it answers.

    Columns and splits are those of `calculation`. Who never asks again is right where the first call is answered, so
    in 1 - `failing` of the episodes; who has k calls, in 1 - `failing`^k.

    Args:
        failing: the share of calls that fail; also a setting of the tool.
        calls: how many a demonstration makes at most.
        largest: the numbers are 100 to this one.
        template: the prompt, with `{question}`.
        result: how a demonstration's result is written, with `{result}`; also a setting of the agent loop.
        answer: how the answer is written, with `{answer}`.
        noise: the share of the demonstrations that give up at the first failure.
        train_size: examples in `train`.
        eval_size: examples in `eval`.
        sft_size: examples in `sft`.
        seed: draws other questions.

    >>> episodes = [example["completion"] for example in Persistence(failing=0.5).examples("sft")[:50]]
    >>> sorted({len(messages) for messages in episodes})[:2], {messages[-1]["role"] for messages in episodes}
    ([3, 5], {'assistant'})
    """

    failing: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.2, validator=in_range)
    calls: Annotated[int, Interval(ge=1, le=16)] = attrs.field(default=4, validator=in_range)

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; of `sft` with an episode as its completion."""
        question, value = self._question(rng, held_out=split == "eval")
        example = {"prompt": self.template.format(question=question), "question": question, "answer": str(value)}
        if split != "sft":
            return example
        return {**example, "completion": self._episode(question, gives_up=bool(rng.random() < self.noise))}

    def _episode(self, question: str, *, gives_up: bool) -> list[Message]:
        call = Hermes().write(Call("faulty_calculator", {"expression": question}))
        messages: list[Message] = []
        state, found = None, ""
        for _ in range(1 if gives_up else self.calls):
            said = faulty_calculator(question, state, failing=self.failing)
            state, found = said.state, said.text
            messages += [
                {"role": "assistant", "content": call},
                {"role": "tool", "content": self.result.format(result=found)},
            ]
            if found.lstrip("-").isdigit():
                break
        answer = found if found.lstrip("-").isdigit() else GIVES_UP
        return [*messages, {"role": "assistant", "content": self.answer.format(answer=answer)}]
