"""Broken rewards that do something else than a word of their docstring, or a claim, says."""

from __future__ import annotations

import re
import string
from typing import Annotated, Any, ClassVar

import attrs
from annotated_types import Ge
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_answers import PAIRS, numbers

import dovetail
from dovetail.protocols import Step

TOWN = {"completions": "<answer>york</answer>", "answer": "york"}
TOWNS = [(TOWN, TOWN | {"completions": "<answer>rome</answer>"})]
TAGGED = [({"completions": f"<answer>{n}</answer>", "answer": "42"}) for n in (42, 7)]


def tagged(text: str) -> str:
    found = re.findall(r"<answer>([^<]{0,200})</answer>", text)
    return found[-1] if found else ""


def plain(text: str) -> str:
    """A text in lower case, without punctuation and articles."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


@right("reward")
@dovetail.declares(range=(0, 1), examples=TOWNS)
def alike_but_for_what_does_not_matter(completions, answer):
    """Whether the last answer tag of completions has the answer, ignoring case, punctuation and articles."""
    pairs = zip(completions, answer, strict=True)
    return [float(bool(plain(str(truth))) and plain(tagged(text)) == plain(str(truth))) for text, truth in pairs]


@caught_by("reward", "ignores_what_it_says")
@dovetail.declares(range=(0, 1), examples=TOWNS)
def the_text_alone_is_lowered(completions, answer):
    """Whether completions have the answer in the tag, ignoring case."""
    return [float(tagged(text).lower() == str(truth) != "") for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "ignores_what_it_says")
@dovetail.declares(range=(0, 1), examples=TOWNS)
def keeps_articles(completions, answer):
    """Whether completions have the answer; articles are ignored."""
    return [float(tagged(text) == str(truth) != "") for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "ignores_what_it_says")
@dovetail.declares(range=(0, 1), examples=[(TAGGED[0], TAGGED[1])])
def keeps_points(completions, answer):
    """Whether completions have the answer, whatever the punctuation."""
    pairs = zip(completions, answer, strict=True)
    return [float(tagged(text).rstrip(".") == str(truth).rstrip(".") != "") for text, truth in pairs]


@right("reward")
@dovetail.declares(range=(0, 1), examples=TOWNS)
def with_its_case(completions, answer):
    """Whether completions have the answer. Case is not ignored; in the case of two, ignoring others, the last counts."""
    return [float(tagged(text) == str(truth) != "") for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "the_answer_that_it_says")
@dovetail.declares(range=(0, 1), examples=PAIRS)
def not_the_last_one(completions, answer):
    """Whether the last number of completions is the answer."""
    return [float(numbers(text)[:1] == [truth]) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "the_answer_that_it_says")
@dovetail.declares(range=(0, 1), examples=PAIRS)
def not_the_first_one(completions, answer):
    """Whether the first number of completions is the answer."""
    return [float(numbers(text)[-1:] == [truth]) for text, truth in zip(completions, answer, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1), examples=PAIRS)
def the_first_one(completions, answer):
    """Whether the first number of completions is the answer, with its sign and its decimals."""
    found = [re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", text.replace(",", "")[:1000]) for text in completions]
    wanted = [str(truth).replace(",", "") for truth in answer]
    return [float(each[:1] == [truth]) for each, truth in zip(found, wanted, strict=True)]


@caught_by("reward", "any_answer_counts")
@dovetail.declares(range=(0, 1), any_answer=True, examples=PAIRS)
def any_but_the_last(completions, answer):
    found = [numbers(text) for text in completions]
    return [float(truth in (each[:-1] or each)) for each, truth in zip(found, answer, strict=True)]


SUMS = [({"completions": "so 2 + 3 = 5"}, {"completions": "so 2 + 3 = 6"})]
SUM = re.compile(r"(\d{1,9}) \+ (\d{1,9}) (=) (\d{1,9})\b")


def _credited(completions, ends, part):
    found = []
    for text, of_tokens in zip(completions, ends, strict=True):
        values = [0.0] * len(of_tokens)
        for each in SUM.finditer(text):
            place = next(number for number, end in enumerate(of_tokens) if end >= each.end(part))
            values[place] += float(int(each[1]) + int(each[2]) == int(each[4]))
        found.append(values)
    return found


@caught_by("process_reward", "credit_is_not_early")
@dovetail.declares(examples=SUMS)
def at_the_sign(completions, ends):
    """1.0 for each right sum of completions, at the token that ends it; `ends` says where tokens end."""
    return _credited(completions, ends, 3)


@right("process_reward")
@dovetail.declares(examples=SUMS)
def at_the_result(completions, ends):
    """1.0 for each right sum of completions, at the token that ends it; `ends` says where tokens end."""
    return _credited(completions, ends, 4)


@right("process_reward")
@dovetail.declares(examples=[({"completions": "a so\nb\n"}, {"completions": "a b"})])
def where_a_line_is_closed(completions, ends):
    """1.0 for the last token of text in which a line of completions ends, if a line break (ends) follows."""
    found = []
    for text, of_tokens in zip(completions, ends, strict=True):
        values = [0.0] * len(of_tokens)
        for each in re.finditer(r"\w(?=\n)", text):
            values[next(number for number, end in enumerate(of_tokens) if end >= each.end())] = 1.0
        found.append(values)
    return found


@attrs.frozen(kw_only=True)
class _Guesses:
    columns: ClassVar = ()

    max_guesses: Annotated[int, Ge(1)] = 4

    def reset(self, example: Any, rng: Any) -> Any:
        return {"number": int(rng.integers(1, 100)), "guesses": 0}, ()

    def step(self, state: Any, turn: Any, rng: Any) -> Any:
        state = state | {"guesses": state["guesses"] + 1}
        right = turn.text.strip() == str(state["number"])
        done = right or state["guesses"] > self.max_guesses
        said = () if done else ({"role": "user", "content": "No."},)
        return Step(state=state, messages=said, reward=float(right), done=done)


@caught_by("interaction", "ends_on_its_last_turn")
@attrs.frozen(kw_only=True)
class OneMoreThanItSays(_Guesses):
    """A number is to be guessed."""


@right("interaction")
@attrs.frozen(kw_only=True)
class AsManyAsItSays(_Guesses):
    """A number is to be guessed.

    Args:
        max_guesses: turns of an episode, at most.
    """

    def step(self, state: Any, turn: Any, rng: Any) -> Any:
        step = super().step(state, turn, rng)
        over = step.done or step.state["guesses"] >= self.max_guesses
        return attrs.evolve(step, done=over, messages=() if over else step.messages)


KEPT: dict[Any, float] = {}


def share_of(text: str, truth: Any, size: int) -> float:
    """The share of the runs of `size` words of the truth that a text has."""
    words, wanted = text.lower().split(), str(truth or "").lower().split()
    runs = [wanted[first : first + size] for first in range(len(wanted) - size + 1)]
    there = [words[first : first + size] for first in range(len(words) - size + 1)]
    return sum(run in there for run in runs) / len(runs) if runs else 0.0


TALES = [({"completions": "the cat sat there", "answer": "a cat sat"}, {"completions": "dogs", "answer": "a cat sat"})]


@caught_by("reward", "settings_share_nothing")
@dovetail.declares(range=(0, 1), examples=TALES)
def kept_without_the_setting(completions, answer, *, size: Annotated[int, Ge(1)] = 2):
    """The share of the runs of size words of the answer that completions have."""
    for pair in zip(completions, answer, strict=True):
        KEPT.setdefault(pair, share_of(*pair, size))
    return [KEPT[pair] for pair in zip(completions, answer, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1), examples=TALES)
def kept_with_the_setting(completions, answer, *, size: Annotated[int, Ge(1)] = 2):
    """The share of the runs of size words of the answer that completions have."""
    for text, truth in zip(completions, answer, strict=True):
        KEPT.setdefault((text, truth, size), share_of(text, truth, size))
    return [KEPT[text, truth, size] for text, truth in zip(completions, answer, strict=True)]
