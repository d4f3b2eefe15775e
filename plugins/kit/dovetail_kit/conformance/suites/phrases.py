"""Claims about rewards and answers that look for words: a word within another one, the last answer, and limits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.given import GIVEN
from dovetail_kit.conformance.subject import Subject, said_of
from dovetail_kit.conformance.suites.answers import ANSWERS, NUMBERS
from dovetail_kit.conformance.suites.texts import (
    ROUNDING,
    asks_of_many_texts,
    call_apart,
    call_on,
    equal_within,
    is_alone,
    is_pure,
    records_of,
    short,
)

WITHIN: Final = re.compile(
    r"\b(sub-?strings?|partial(ly)?|fuzzy|approximate(ly)?|contain(s|ed|ing)?|includ(e|es|ed|ing)|part of|anywhere"
    r"|occurs?|appears?|prefix|suffix|stems?|(starts|begins|ends) with|letters?|characters?)\b",
    re.IGNORECASE,
)
"""Words of a docstring after which a text within another word may be what is looked for."""
WHOLE: Final = re.compile(r"\b(whole|entire|separate) (words?|phrases?|items?|names?)\b|\bword boundar", re.IGNORECASE)
"""Words of a docstring after which it is not."""
WHOLE_NUMBER: Final = re.compile(r"(?<![\w.,])[1-9][0-9]*(?![\w]|[.,][0-9])")
EXACT: Final = re.compile(r"\bexactly\b", re.IGNORECASE)
AT_LEAST: Final = re.compile(r"\bat least\b|\bno fewer than\b|\bor more\b", re.IGNORECASE)
AT_MOST: Final = re.compile(r"\bat most\b|\bno more than\b|\bup to\b|\bor fewer\b", re.IGNORECASE)
UNITS: Final[dict[str, Callable[[int], str]]] = {
    "words": lambda count: " ".join(_word(number) for number in range(count)),
    "lines": lambda count: "\n".join(f"{_word(number)} {_word(number + 1)}" for number in range(count)),
    "sentences": lambda count: " ".join(f"{_word(number).title()} is here." for number in range(count)),
    "characters": lambda count: "x" * count,
}
"""Texts of so many of what a number may count."""
MOST: Final = 400


def _word(number: int) -> str:
    """Return a word of five letters or more, a different one for each number."""
    letters = "abcdefghijklmnoprstu"
    return f"l{letters[number % 20]}m{letters[number // 20 % 20]}na"


@check(
    "reward", claim="examples", when=is_pure, fix=r"Compare whole words: re.search(rf'\b{re.escape(word)}\b', text)."
)
def a_longer_word_is_another(subject: Subject) -> None:
    """A word of the answer with other letters before and behind it is another word, unless the docstring says that the
    answer may be within another text; of other columns, if it says that words are whole.

    `truth in text` is true of Parisian, and of every other word that has the answer in it.
    """
    doc = subject.component.doc
    whole = bool(WHOLE.search(doc))
    if WITHIN.search(doc) and not whole:
        return
    for record, _ in subject.declared["examples"]:
        text = record["completions"]
        shared = _words_of(record, everywhere=whole) & {*re.findall(r"[A-Za-z]{3,}", text)}
        if not shared:
            continue
        word = max(sorted(shared), key=len)
        other = f"{word[:-1]}{'x' if word[-1] != 'x' else 'y'}"
        said = (word, f"klu{word}", f"{word}ilum", f"klu{word}ilum", other, f"klu{other}ilum")
        records = [record | {"completions": re.sub(rf"\b{word}\b", each, text)} for each in said]
        good, *longer, changed, unlike = call_apart(subject, records)
        if None in (good, *longer, changed, unlike) or not max(np.sum(changed), np.sum(unlike)) < np.sum(good):
            continue  # it does not compare words, or not exactly
        if all(np.sum(each) >= np.sum(good) for each in longer):
            raise Failed(f"{short(records[3]['completions'])} gets {longer[-1]!r}, as much as {short(text)}")


def _words_of(record: dict[str, Any], *, everywhere: bool) -> set[str]:
    """Return the words of an answer that has no digits, or of all columns that are texts or lists of texts."""
    names = {*record} - {*GIVEN, "completions"} if everywhere else {*ANSWERS} & {*record}
    values = [str(record[name]) for name in names]
    return {word for value in values if not re.search(r"\d", value) for word in re.findall(r"[A-Za-z]{3,}", value)}


@check(
    "reward", claim="examples", when=is_pure, fix="Compare whole numbers, or whole items: `a in b` is true of a part."
)
def a_longer_number_is_another(subject: Subject) -> None:
    """A number of an answer that is more than a number, such as a list, is not one with another digit before or behind
    it.

    As a substring, the 12 of "3 and 12" occurs in 112, and in 120.
    """
    for record, _ in subject.declared["examples"]:
        text, there = record["completions"], [str(record[name]) for name in ANSWERS if name in record]
        shared = {number for value in there for number in WHOLE_NUMBER.findall(value)} & {*WHOLE_NUMBER.findall(text)}
        if not shared or not any(re.search(r"[^0-9]", value) for value in there):
            continue
        number = max(sorted(shared), key=len)
        said = (number, f"{number}1", f"1{number}", str(NUMBERS[0]), str(int(number) + 3))
        records = [record | {"completions": re.sub(rf"\b{number}\b", each, text)} for each in said]
        good, *longer, far, near = call_apart(subject, records)
        if None in (good, *longer, far, near) or not max(np.sum(far), np.sum(near)) < np.sum(good):
            continue  # it does not compare numbers
        for each, score in zip(records[1:], longer, strict=False):
            if np.sum(score) >= np.sum(good):
                raise Failed(f"{short(each['completions'])} gets {score!r}, as much as {short(text)}")


@check(
    "reward",
    claim="last_answer",
    when=lambda component: is_alone(component) and "examples" in component.declares,
    name="the_last_of_its_examples",
    fix="Take the last match, not the first: re.findall(...)[-1].",
)
def the_last_of_its_examples(subject: Subject) -> None:
    """If a completion is both texts of a pair of examples that differ in a part, it gets no more where the bad one is
    last.

    Answers that are no numbers have a last one, too.
    """
    for good, bad in subject.declared["examples"]:
        columns = {*good, *bad} - {*GIVEN, "completions"}
        texts = (good["completions"], bad["completions"])
        if any(good.get(name) != bad.get(name) for name in columns) or not _of_one_form(*texts):
            continue
        ends_badly, ends_well = (dict(good) | {"completions": "\n".join(each)} for each in (texts, texts[::-1]))
        worse, better = call_on(subject, [_without_tokens(each) for each in (ends_badly, ends_well)])
        if None not in (better, worse) and np.sum(worse) > np.sum(better) + ROUNDING:
            raise Failed(f"{short(ends_badly['completions'])} gets {worse!r}, and the other way round {better!r}")


def _of_one_form(one: str, other: str) -> bool:
    """Tell whether two texts differ in a part, and not at the beginning: two answers in the same form."""
    begun = _alike_from(one, other)
    ended = _alike_from(one[begun:][::-1], other[begun:][::-1])
    return begun > 1 and begun + ended < min(len(one), len(other))


def _alike_from(one: str, other: str) -> int:
    """Return how many characters two texts share at their beginning."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _without_tokens(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("tokens", "logps", "ends")}


@check(
    "answer",
    claim="examples",
    when=lambda component: is_pure(component) and component.declares.get("last_answer", True),
    name="the_last_of_its_examples",
    fix="Take the last match, not the first: re.findall(...)[-1]; or declare last_answer=False.",
)
def the_last_of_its_examples_votes(subject: Subject) -> None:
    """If a completion is both texts of a pair of examples, its answer is not that of the first one in either order,
    unless declared last_answer=False.

    A form that no other check knows has a last answer, too.
    """
    for pair in subject.declared["examples"]:
        texts = [record["completions"] for record in pair]
        for joint in ("\n", " "):
            both = [joint.join(each) for each in (texts, texts[::-1])]
            one, other, found, turned = call_on(subject, [{"completions": text} for text in (*texts, *both)])
            if one != other and (found, turned) == (one, other):
                raise Failed(f"{short(both[0])} has the answer {found!r}, and the other way round it is {turned!r}")


def _limits(subject: Subject) -> Iterator[tuple[str, int, str, Callable[[int], str]]]:
    """Yield each whole number that its line in the docstring calls one of words, lines or the like, with that line."""
    for name, value in subject.params.items():
        told = said_of(subject.component, name)
        units = [unit for unit in UNITS if re.search(rf"\b{unit}\b", told)]
        if type(value) is int and 1 < value <= MOST and len(units) == 1:
            yield name, value, told, UNITS[units[0]]


def _has_limits(component: Component) -> bool:
    return is_alone(component) and any(
        type(value) is int and re.search(rf"\b({'|'.join(UNITS)})\b", said_of(component, name))
        for name, value in component.params.items()
    )


@check(
    "reward",
    when=_has_limits,
    fix="`at most n` is count <= n, `at least n` is count >= n, and `exactly n` is count == n.",
)
def a_limit_is_met(subject: Subject) -> None:
    """A text of as many words, lines, sentences or characters as a number names by its line in the docstring is within
    an `at most` and an `at least`; one more is not `exactly` as many.

    With `<` for `<=` what is just allowed is refused, and with `>=` for `==` everything longer is right as well.
    """
    asks_of_many_texts(subject)
    like = _without_tokens(records_of(subject)[0])
    for name, value, told, make in _limits(subject):
        records = [like | {"completions": make(count)} for count in range(value - 2, value + 3)]
        few, below, there, above, many = scores = call_on(subject, records)
        if None in scores:
            continue

        def alike(*values: Any) -> bool:
            return all(equal_within(ours, theirs, ROUNDING) for ours, theirs in itertools.pairwise(values))

        # flat on both sides, and a step between: which side the limit itself is on is what a word of the line says
        step = alike(few, below) and alike(above, many) and not alike(below, above)
        said = [bool(pattern.search(told)) for pattern in (AT_MOST, AT_LEAST, EXACT)]
        wrong = (
            (said == [True, False, False] and step and alike(there, above))
            or (said == [False, True, False] and step and alike(there, below))
            or (said == [False, False, True] and np.sum(there) > np.sum(below) and np.sum(above) >= np.sum(there))
        )
        if wrong:
            raise Failed(
                f"'{name}' = {value}, '{told.strip()}', and texts of {value - 1}, {value} and {value + 1} of them get"
                f" {below!r}, {there!r} and {above!r}"
            )
