"""Task `local_search`: questions about fictional people, which need exactly two searches to answer."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import attrs
import numpy as np
from annotated_types import Interval

from dovetail.protocols import Call
from dovetail.ranges import in_range
from dovetail.registry import declares
from dovetail_agent.task._made import Made
from dovetail_agent.tool_format.pythonic import Pythonic

if TYPE_CHECKING:
    from dovetail.protocols import Example, Message, Split

PEOPLE: Final = 800
TOWNS: Final = 160
RIVERS: Final = 40
"""How many there are in the fictional world, which is always the same."""
HELD_OUT: Final = 8
"""Of so many people one is asked about in `eval` alone."""

_FIRST: Final = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_VOWELS: Final = ("a", "e", "i", "o", "u")


@functools.cache
def world() -> tuple[dict[str, str], dict[str, str]]:
    """Return the birthplace of each person, and the river of each town.

    >>> born, river = world()
    >>> len(born), len(river), len(set(river.values()))
    (800, 160, 40)
    """
    rng = np.random.default_rng(0)
    names = _names(rng, PEOPLE + TOWNS + RIVERS)
    people, towns, rivers = names[:PEOPLE], names[PEOPLE : PEOPLE + TOWNS], names[PEOPLE + TOWNS :]
    river = {town: rivers[number % RIVERS] for number, town in enumerate(towns)}
    return {person: towns[int(rng.integers(TOWNS))] for person in people}, river


def _names(rng: np.random.Generator, count: int) -> list[str]:
    """Return different names of three syllables."""
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = ("".join((rng.choice(_FIRST), rng.choice(_VOWELS))) for _ in range(3))
        found["".join(syllables).capitalize()] = None
    return list(found)


@declares(repeats=True)
@attrs.frozen(kw_only=True)
class TwoHops(Made):
    r"""Questions about the river on which a person's birthplace lies, which take two facts, each found by a search.

    Columns: `question` and `answer`. The corpus is `tool.search.corpus = 'local_search'`: 960 sentences about people
    and towns. People in `eval` are in no other split. Without the corpus, a guess is right with probability 1/40.

    Args:
        template: the prompt, with `{question}`.
        result: the format of a result in a demonstration, with `{result}`; also a setting of the agent loop.
        answer: the format of the answer, with `{answer}`.
        noise: the fraction of demonstrations that guess a river after the first search.
        train_size: number of examples in `train`.
        eval_size: number of examples in `eval`.
        sft_size: number of examples in `sft`.
        seed: draws other questions about the same world.

    >>> for message in TwoHops(result="{result}").examples("sft")[0]["completion"]:
    ...     print(message["content"])
    [search(query='Vubalu')]
    [1] Vubalu was born in Ganufi.
    [search(query='Ganufi lies')]
    [1] Ganufi lies on the Fupovo.
    <answer>Fupovo</answer>
    """

    template: str = "{question}\n"
    result: str = "\n{result}\n"
    answer: str = "<answer>{answer}</answer>"
    noise: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.0, validator=in_range)

    @property
    def columns(self) -> tuple[str, ...]:
        """`question` and `answer`."""
        return ("question", "answer")

    @staticmethod
    def passages() -> Iterator[tuple[str, str]]:
        """Yield the passages for the tool `search`, without titles."""
        born, river = world()
        for person, town in born.items():
            yield "", f"{person} was born in {town}."
        for town, its in river.items():
            yield "", f"{town} lies on the {its}."

    def make(self, split: Split, rng: np.random.Generator) -> Example:
        """Return an example; in `sft`, its completion is an episode."""
        born, river = world()
        people = [name for number, name in enumerate(born) if (number % HELD_OUT == 0) == (split == "eval")]
        person = people[int(rng.integers(len(people)))]
        question = f"On which river was {person} born?"
        example = {"prompt": self.template.format(question=question), "question": question}
        example["answer"] = river[born[person]]
        if split != "sft":
            return example
        guesses = bool(rng.random() < self.noise)
        rivers = sorted(set(river.values()))
        answer = str(rng.choice(rivers)) if guesses else example["answer"]
        return {**example, "completion": self._episode(person, answer, hops=1 if guesses else 2)}

    def _episode(self, person: str, answer: str, *, hops: int) -> list[Message]:
        born, river = world()
        town = born[person]
        asked = [(person, f"{person} was born in {town}."), (f"{town} lies", f"{town} lies on the {river[town]}.")]
        messages: list[Message] = []
        for query, found in asked[:hops]:
            call = Pythonic().write(Call("search", {"query": query}))
            messages += [
                {"role": "assistant", "content": call},
                {"role": "tool", "content": self.result.format(result=f"[1] {found}")},
            ]
        return [*messages, {"role": "assistant", "content": self.answer.format(answer=answer)}]
