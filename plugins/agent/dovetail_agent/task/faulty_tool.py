"""Task `faulty_tool`: the questions of `calculation`, with a calculator that fails at random and must be retried."""

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

    Columns and splits are those of `calculation`. A policy that never retries is right only if the first call succeeds,
    in a fraction 1 - `failing` of the episodes; with up to k calls it is 1 - `failing`^k.

    Args:
        failing: the fraction of calls that fail; also a setting of the tool.
        calls: maximum number of calls in a demonstration.
        largest: the numbers are 100 to this one.
        template: the prompt, with `{question}`.
        result: the format of a result in a demonstration, with `{result}`; also a setting of the agent loop.
        answer: the format of the answer, with `{answer}`.
        noise: the fraction of demonstrations that give up at the first failure.
        train_size: number of examples in `train`.
        eval_size: number of examples in `eval`.
        sft_size: number of examples in `sft`.
        seed: draws other questions.

    >>> episodes = [example["completion"] for example in Persistence(failing=0.5).examples("sft")[:50]]
    >>> sorted({len(messages) for messages in episodes})[:2], {messages[-1]["role"] for messages in episodes}
    ([3, 5], {'assistant'})
    """

    failing: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.2, validator=in_range)
    calls: Annotated[int, Interval(ge=1, le=16)] = attrs.field(default=4, validator=in_range)

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; in `sft`, its completion is an episode."""
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
