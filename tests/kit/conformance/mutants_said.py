"""Broken rewards that do something else than a word of their docstring, or a claim, says."""

from __future__ import annotations

import re
import string

from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_answers import PAIRS, numbers

import dovetail

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
