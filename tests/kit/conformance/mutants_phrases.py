"""Broken rewards and answers: another row's columns, a word within a word, the first answer, a limit missed by one."""

from __future__ import annotations

import math
import re
from typing import Annotated

import attrs
import numpy as np
from annotated_types import Ge
from tests.kit.conformance.mutants import caught_by, right

import dovetail

CITY = {"completions": "It is Paris.", "answer": "Paris"}
CITIES = [(CITY, CITY | {"completions": "It is Rome."})]
PARTS = {"completions": "a fox, a hen", "wanted": ["fox", "hen"]}
LISTED = [(PARTS, PARTS | {"completions": "a cow"})]
STEPS = [({"completions": "a fox\nok", "answer": "fox"}, {"completions": "a cow\nok", "answer": "fox"})]


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+", text[:2000])


@caught_by("reward", "columns_of_its_own")
@dovetail.declares(range=(0, 1), examples=LISTED)
def what_the_first_row_wants(completions, wanted):
    return [float(bool(wanted[0]) and {*wanted[0]} <= {*words(text)}) for text in completions]


@caught_by("reward", "columns_of_its_own")
@dovetail.declares(range=(0, 1), examples=CITIES)
def a_dict_of_texts(completions, answer):
    truths = dict(zip(completions, answer, strict=True))
    return [float(truths[text] in words(text)) for text in completions]


@caught_by("process_reward", "columns_of_its_own")
@dovetail.declares(examples=STEPS)
def what_the_last_row_says(completions, ends, answer):
    return [
        [float(place == len(of) - 1 and answer[-1] in words(text)) for place in range(len(of))]
        for text, of in zip(completions, ends, strict=True)
    ]


@caught_by("reward", "within_range")
@dovetail.declares(range=(0, 1), examples=CITIES)
def a_share_of_another_total(completions, answer):
    pairs = zip(completions, answer, strict=True)
    return [
        min(sum(w in str(truth).split() for w in words(text)) / max(len(str(truth).split()), 1), 3)
        for text, truth in pairs
    ]


def lengths(text: str, truth: str) -> list[int]:
    """Longest common subsequences of words, of all beginnings of `truth`; wrong where a word comes twice."""
    row = [0] * (len(words(truth)) + 1)
    for word in words(text)[:50]:
        for place, other in enumerate(words(truth), 1):
            row[place] = row[place - 1] + 1 if word == other else max(row[place], row[place - 1])
    return row


@caught_by("reward", "keeps_its_word")
@dovetail.declares(examples=CITIES)
def a_row_that_is_already_new(completions, answer):
    """The longest common subsequence of completions and answer over the words of completions.

    Returns:
        A number between 0 and 1 for each.
    """
    pairs = zip(completions, answer, strict=True)
    return [lengths(text, str(truth))[-1] / max(len(words(text)), 1) for text, truth in pairs]


@caught_by("reward", "a_longer_word_is_another")
@dovetail.declares(range=(0, 1), examples=CITIES)
def somewhere_in_the_text(completions, answer):
    """Whether the answer is given."""
    return [float(str(truth) in text) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "a_longer_word_is_another")
@dovetail.declares(range=(0, 1), examples=[(PARTS, PARTS | {"completions": "cow"})])
def words_without_their_ends(completions, wanted):
    """The share of wanted that are whole words of completions."""
    return [
        sum(word in text for word in each) / max(len(each), 1) for text, each in zip(completions, wanted, strict=True)
    ]


PAIR = {"completions": "12 and 5", "answer": "5, 12"}
PAIR_OF_INTS = {"completions": "it is 42", "target": 42}
KNOWN = {"completions": "it is 42", "answers": ["42", "forty-two"]}


@caught_by("reward", "a_longer_number_is_another")
@dovetail.declares(range=(0, 1), examples=[(PAIR, PAIR | {"completions": "7"})])
def items_somewhere(completions, answer):
    pairs = zip(completions, answer, strict=True)
    return [float(bool(truth) and all(item in text for item in str(truth).split(", "))) for text, truth in pairs]


@caught_by("reward", "the_whole_answer")
@dovetail.declares(range=(0, 1), examples=[(PAIR_OF_INTS, PAIR_OF_INTS | {"completions": "it is 7"})])
def a_number_somewhere(completions, target):
    return [float(str(truth) in text) for text, truth in zip(completions, target, strict=True)]


@caught_by("reward", "the_whole_answer")
@dovetail.declares(range=(0, 1), examples=[(KNOWN, KNOWN | {"completions": "it is 7"})])
def one_of_them_somewhere(completions, answers):
    pairs = zip(completions, answers, strict=True)
    return [float(any(each in text for each in known)) for text, known in pairs]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(PAIR_OF_INTS, PAIR_OF_INTS | {"completions": "it is 7"})])
def the_last_whole_number(completions, target):
    """Whether the last number of completions is the target."""
    found = [re.findall(r"-?\d+(?:\.\d+)?", text[-300:]) for text in completions]
    return [float(bool(each) and float(each[-1]) == truth) for each, truth in zip(found, target, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(PAIR_OF_INTS, PAIR_OF_INTS | {"completions": "it is 7"})])
def how_near_it_is(completions, target):
    """1 / (1 + |x - target|) for the last number x of completions."""
    found = [re.findall(r"-?\d+(?:\.\d+)?", text[-300:]) for text in completions]
    return [1 / (1 + abs(float(each[-1]) - t)) if each else 0.0 for each, t in zip(found, target, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(KNOWN, KNOWN | {"completions": "it is 7"})])
def the_last_word_is_one_of_them(completions, answers):
    """Whether the last word of completions is one of the answers."""
    pairs = zip(completions, answers, strict=True)
    return [float(text.split()[-1:] != [] and text.split()[-1] in known) for text, known in pairs]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(PAIR, PAIR | {"completions": "7"})])
def the_same_numbers(completions, answer):
    """Whether completions have the numbers of the answer, in any order."""
    pairs = zip(completions, answer, strict=True)
    return [
        float(sorted(re.findall(r"\d+", text)) == sorted(re.findall(r"\d+", str(truth))) != []) for text, truth in pairs
    ]


@right("reward")
@dovetail.declares(range=(0, 1), examples=LISTED)
def words_with_their_ends(completions, wanted):
    """The share of wanted that are whole words of completions."""
    return [
        sum(word in words(text) for word in each) / max(len(each), 1)
        for text, each in zip(completions, wanted, strict=True)
    ]


@right("reward")
@dovetail.declares(range=(0, 1), examples=LISTED)
def the_words_that_are_mentioned(completions, wanted):
    """The share of wanted that completions mention, in whatever form: foxes for fox."""
    return [
        sum(word in text for word in each) / max(len(each), 1) for text, each in zip(completions, wanted, strict=True)
    ]


@right("reward")
@dovetail.declares(range=(0, 1), examples=CITIES)
def it_contains_the_answer(completions, answer):
    """Whether completions contain the answer, as a substring."""
    return [float(bool(truth) and str(truth) in text) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "the_last_of_its_examples")
@dovetail.declares(range=(0, 1), last_answer=True, examples=CITIES)
def the_first_city(completions, answer):
    found = [[word for word in words(text) if word[0].isupper() and word != "It"] for text in completions]
    return [float(each[:1] == [truth]) for each, truth in zip(found, answer, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1), last_answer=True, examples=[*CITIES, (CITY, CITY | {"completions": "Who knows?"})])
def the_last_city(completions, answer):
    """Whether the last word of completions with a capital letter, but for the first of a sentence, is the answer."""
    found = [re.findall(r"\bis ([A-Z]\w+)", text) for text in completions]
    return [float(each[-1:] == [truth]) for each, truth in zip(found, answer, strict=True)]


@caught_by("answer", "the_last_of_its_examples")
@dovetail.declares(examples=[({"completions": "thus: <<x + 1>>"}, {"completions": "so <<2 y>>"})])
def the_first_in_brackets(completions):
    found = [re.search(r"<<([^<>]{1,50})>>", text) for text in completions]
    return [each[1] if each else None for each in found]


@right("answer")
@dovetail.declares(examples=[({"completions": "It is <<x + 1>>"}, {"completions": "so 2 y"})])
def in_brackets_or_at_the_end(completions):
    """What completions have in brackets, the last time, or else what stands at the end."""
    found = [re.findall(r"<<([^<>]{1,50})>>", text) or re.findall(r"\d \w$", text) for text in completions]
    return [each[-1] if each else None for each in found]


@caught_by("reward", "a_limit_is_met")
@dovetail.declares(range=(0, 1))
def fewer_than_it_may_have(completions, *, most: Annotated[int, Ge(1)] = 40):
    """Whether completions are short.

    Args:
        completions: texts.
        most: words of a text, at most.
    """
    return [float(len(text.split()) < most) for text in completions]


@caught_by("reward", "a_limit_is_met")
@dovetail.declares(range=(0, 1))
def as_many_or_more(completions, *, size: Annotated[int, Ge(1)] = 3):
    """Whether completions are of one size.

    Args:
        completions: texts.
        size: exactly so many lines.
    """
    return [float(len(text.splitlines()) >= size) for text in completions]


@caught_by("reward", "a_limit_is_met")
@dovetail.declares(range=(0, 1))
def more_than_it_needs(completions, *, least: Annotated[int, Ge(1)] = 3):
    """Whether completions are long.

    Args:
        completions: texts.
        least: sentences of a text, at least.
    """
    return [float(len(re.findall(r"\.(?: |$)", text[:5000])) > least) for text in completions]


@right("reward")
@dovetail.declares(range=(0, 1))
def between_two_lengths(
    completions, *, least: Annotated[int, Ge(1)] = 3, most: Annotated[int, Ge(1)] = 40, exact: Annotated[int, Ge(1)] = 7
):
    """1.0 for completions within two numbers of words, 0.5 if there are not exactly as many lines.

    Args:
        completions: texts.
        least: words, at least.
        most: words, at most.
        exact: exactly so many lines.
    """
    inside = [least <= len(text.split()) <= most for text in completions]
    lines = [len(text.splitlines()) == exact for text in completions]
    return [(0.5 + 0.5 * same) * within for same, within in zip(lines, inside, strict=True)]


@right("reward")
@dovetail.declares(range=(0, 1))
def shorter_and_shorter(completions, *, most: Annotated[int, Ge(1)] = 40):
    """1 - n / most with n words of completions, and never negative.

    Args:
        completions: texts.
        most: words at which nothing is left, so that a text is to have at most as many.
    """
    return [max(1.0 - len(text.split()) / most, 0.0) for text in completions]


@attrs.frozen(kw_only=True)
class _Stock:
    """Sums of a stock of 200; what is held out is the same whatever the seed, which decides the order of training."""

    seed: int = 0
    train_size: Annotated[int, Ge(1)] = 120
    eval_size: Annotated[int, Ge(1)] = 30
    columns = ("answer",)

    def corpus(self):
        return ["1 + 1 ="]

    def held_out(self, number: int) -> bool:
        return number % 5 == 0

    def examples(self, split):
        if split == "sft":
            return []
        numbers = [n for n in range(200) if self.held_out(n) == (split == "eval")]
        order = np.random.default_rng(self.seed).permutation(len(numbers)) if split == "train" else range(len(numbers))
        size = self.train_size if split == "train" else self.eval_size
        return [{"prompt": f"{numbers[n]} + 1 =", "answer": str(numbers[n] + 1)} for n in order][:size]


@right("task")
@attrs.frozen(kw_only=True)
class AStock(_Stock):
    """Sums of a stock of 200; what is held out is the same whatever the seed, which decides the order of training.

    Args:
        seed: of the order.
        train_size: examples of `train`.
        eval_size: examples of `eval`.
    """


@right("task")
@attrs.frozen(kw_only=True)
class SplitAnew(_Stock):
    """Sums of a stock of 200, a fifth of which is held out: others with every seed.

    Args:
        seed: of the order and the splits.
        train_size: examples of `train`.
        eval_size: examples of `eval`.
    """

    def held_out(self, number: int) -> bool:
        return (number + self.seed) % 5 == 0


@caught_by("task", "held_out_from_every_seed")
@attrs.frozen(kw_only=True)
class AnotherOwnerWithEverySeed(_Stock):
    """Sums of a stock of 200; what is held out is the same whatever the seed."""

    def held_out(self, number: int) -> bool:
        return (number + self.seed) % 5 == 0


@caught_by("task", "as_many_as_it_says")
@attrs.frozen(kw_only=True)
class TheSizeOfAnotherSplit(_Stock):
    """Sums."""

    def held_out(self, number: int) -> bool:
        return number % 2 == 0

    def examples(self, split):
        return attrs.evolve(self, eval_size=self.train_size)._all(split)

    def _all(self, split):
        return super().examples(split)


@caught_by("reward", "a_share_is_a_share")
@dovetail.declares(range=(0, 1), examples=CITIES)
def letters_over_words(completions, answer):
    found = [float(truth in words(text)) for text, truth in zip(completions, answer, strict=True)]
    return found, {"letter_share": [sum(map(str.isalpha, text)) / max(len(words(text)), 1) for text in completions]}


@right("reward")
@dovetail.declares(range=(0, 1), examples=CITIES)
def letters_over_letters(completions, answer):
    """Whether the answer is a word of completions; `capital_share` is that of capital letters."""
    found = [float(truth in words(text)) for text, truth in zip(completions, answer, strict=True)]
    return found, {
        "capital_share": [sum(map(str.isupper, text)) / len(text) if text else math.nan for text in completions]
    }


EQUATION = {"completions": "40 + 2 = 42", "numbers": [40, 2], "target": 42}
CITED = {"completions": "It is so [3][5].", "answers": [3, 5]}
RUBRIC = {"completions": "a fox and a hen", "rubric": [("fox", 0.5), ("hen", 0.5)]}


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(EQUATION, EQUATION | {"completions": "40 + 3 = 43"})])
def left_of_the_sign(completions, numbers, target):
    """Whether what stands left of the sign in the last equation of completions uses the numbers and is the target."""
    found = [re.findall(r"(\d{1,6}) \+ (\d{1,6}) =", text[:2000]) for text in completions]
    sums = [[int(each) for each in pairs[-1]] if pairs else [] for pairs in found]
    return [
        float(sorted(terms) == sorted(given) and sum(terms) == wanted)
        for terms, given, wanted in zip(sums, numbers, target, strict=True)
    ]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(CITED, CITED | {"completions": "It is so [4]."})])
def all_that_is_to_be_cited(completions, answers):
    """The share of the answers in the numbers that completions have in brackets, of both together."""
    found = [{int(each) for each in re.findall(r"\[(\d{1,9})\]", text[:2000])} for text in completions]
    pairs = zip(found, answers, strict=True)
    return [len(given & {*wanted}) / max(len(given | {*wanted}), 1) for given, wanted in pairs]


@right("reward")
@dovetail.declares(range=(0, 1), examples=[(RUBRIC, RUBRIC | {"completions": "a cow"})])
def weights_that_add_up(completions, rubric):
    """The weights in the rubric of the words that completions have; a rubric's weights add up to 1."""
    pairs = zip(completions, rubric, strict=True)
    return [sum(weight for word, weight in each if word in words(text)) for text, each in pairs]
