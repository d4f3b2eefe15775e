"""Claims that follow from what a reward says of itself: what it ignores, which answer counts, and that any does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.answers import NUMBERS, good_of, spelt
from dovetail_kit.conformance.suites.spellings import CASE
from dovetail_kit.conformance.suites.texts import ROUNDING, call_on, equal_within, is_alone, short

_IGNORED: Final = r"\b(?:ignor(?:e|es|ing)|regardless of|whatever)\b(?:[ \w,-]*?)\s"
IGNORES: Final[dict[str, tuple[re.Pattern[str], Callable[[str], str]]]] = {
    "case": (
        re.compile(
            rf"{_IGNORED}(?:case|capitals)\b(?! (?:where|when|of|in|that))|\b(?:case|capitals)(?: is| are) ignored"
            r"|\bcase[- ]insensitiv",
            re.IGNORECASE,
        ),
        str.swapcase,
    ),
    "punctuation": (
        re.compile(rf"{_IGNORED}punctuation\b|\bpunctuation(?: is)? (?:ignored|removed|stripped)", re.IGNORECASE),
        lambda answer: f"{answer}!",
    ),
    "articles": (
        re.compile(rf"{_IGNORED}articles\b|\barticles(?: are)? (?:ignored|removed|stripped)", re.IGNORECASE),
        lambda answer: f"the {answer}",
    ),
}
"""What a docstring may say is ignored, and an answer that is another in that alone."""
NOT: Final = re.compile(r"\b(?:not|never|unless|except|but|if|where|with)\b|n't\b", re.IGNORECASE)
"""After these words a sentence may say that it is ignored in part, or not at all."""
FIRST: Final = re.compile(r"\bfirst\b", re.IGNORECASE)
LAST: Final = re.compile(r"\b(?:last|final)\b", re.IGNORECASE)
WHICH: Final = re.compile(r"\b(?:first|last) (?:number|integer|answer|box(?:ed)?|tag)\b", re.IGNORECASE)


def _ignored(component: Component) -> list[str]:
    """Return what the docstring says is ignored, in sentences without a condition."""
    sentences = re.split(r"[.;:]\s", " ".join(component.doc.split()))
    plain = [sentence for sentence in sentences if not NOT.search(sentence)]
    found = [name for name, (pattern, _) in IGNORES.items() if any(pattern.search(each) for each in plain)]
    return [name for name in found if name != "case" or not {*CASE} & {*component.params}]


@check(
    "reward",
    claim="examples",
    when=lambda component: is_alone(component) and bool(_ignored(component)),
    fix="Normalise the answer and the text in the same way, both before they are compared.",
)
def ignores_what_it_says(subject: Subject) -> None:
    """If its docstring says that case, punctuation or articles are ignored, a text whose answer is another in that
    alone is as good; of case the same is true of the column.

    Where only one of the two is normalised, the score depends on how the author of the data has written it.
    """
    for name in _ignored(subject.component):
        right, wrong, answer = _with_words(subject)
        change = IGNORES[name][1]
        text = right["completions"].replace(answer, change(answer))
        other = [right | {"completions": text}]
        # of what is stripped, only the text may be meant
        other += [right | {"answer": change(answer)}] if name == "case" else []
        good, bad, *found = call_on(subject, [right, wrong, *other])
        if good is None or bad is None or not np.sum(good) > np.sum(bad):
            raise Inapplicable("it does not compare words")
        for record, score in zip(other, found, strict=True):
            if not equal_within(score, good, ROUNDING):
                raise Failed(
                    f"its docstring says that {name} is ignored, and for the answer {record['answer']!r}"
                    f" {short(record['completions'])} gets {score!r} instead of {good!r}"
                )


def _with_words(subject: Subject) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return a record that is right, one that is wrong, and the right answer, which is words.

    Raises:
        Inapplicable: if no example is of that form, and numbers cannot be replaced by words.
    """
    for good, bad in subject.declared["examples"]:
        answer = good.get("answer")
        is_words = isinstance(answer, str) and re.fullmatch(r"[A-Za-z]{2,}( [A-Za-z]+)*", answer)
        if is_words and good["completions"].count(answer) == 1:
            return dict(good), dict(bad), answer
    record, number = good_of(subject)
    if "answer" not in record:
        raise Inapplicable("its right answers are in a column of another name")
    return spelt(record, number, "Blum", "Blum"), spelt(record, number, "Klum", "Blum"), "Blum"


def _says_which(component: Component) -> bool:
    """Tell whether the docstring speaks of the first answer and of nothing that is last, or the other way round."""
    doc = component.doc
    return is_alone(component) and bool(WHICH.search(doc)) and bool(FIRST.search(doc)) != bool(LAST.search(doc))


@check(
    "reward",
    claim="examples",
    unless="last_answer",
    when=_says_which,
    fix="Take the last match, re.findall(...)[-1], if the docstring says the last; or correct what it says.",
)
def the_answer_that_it_says(subject: Subject) -> None:
    """If its docstring speaks of the last number, answer or box, or of the first, a completion of two is not scored by
    the other one.

    What comes before the last one is reasoning, and what comes after the first one is whatever the policy adds.
    """
    record, answer = good_of(subject)
    texts = (record["completions"], spelt(record, answer, NUMBERS[0], answer)["completions"])
    good_first, good_last = (
        record | {"completions": "\n".join(each).replace("\n\n", "\n")} for each in (texts, texts[::-1])
    )
    first, last = call_on(subject, [good_first, good_last])
    if first is None or last is None:
        return
    says_last = bool(LAST.search(subject.component.doc))
    if np.sum(first) > np.sum(last) + ROUNDING if says_last else np.sum(last) > np.sum(first) + ROUNDING:
        raise Failed(
            f"its docstring says the {'last' if says_last else 'first'}, {short(good_first['completions'])} gets"
            f" {first!r}, and {short(good_last['completions'])} {last!r}"
        )


@check("reward", claim="any_answer", when=is_alone, fix="Look at all matches, any(...); or drop the claim.")
def any_answer_counts(subject: Subject) -> None:
    """A completion with a right answer and a wrong one gets more than one with the wrong one alone, in either order.

    A reward that says that any answer counts, and looks at one of them, scores where a policy puts it.
    """
    record, answer = good_of(subject)
    right, wrong = record["completions"], spelt(record, answer, NUMBERS[0], answer)["completions"]
    both = [f"{first}\n{last}" for first, last in ((right, wrong), (wrong, right))]
    good, bad, *found = call_on(subject, [record | {"completions": text} for text in (right, wrong, *both)])
    if good is None or bad is None or not np.sum(good) > np.sum(bad):
        raise Inapplicable("it does not tell right from wrong by the number alone")
    for text, score in zip(both, found, strict=True):
        if score is not None and not np.sum(score) > np.sum(bad):
            raise Failed(f"{short(text)} gets {score!r}, as {short(wrong)} does, and {short(right)} {good!r}")
