"""Claims about rewards that compare answers: which numbers and words are others, and that each row has its own."""

from __future__ import annotations

import contextlib
import re
import string
import time
from typing import Any, Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, said_of
from dovetail_kit.conformance.suites.answers import NUMBERS, good_of, spelt
from dovetail_kit.conformance.suites.texts import (
    ROUNDING,
    asks_of_many_texts,
    call_on,
    equal_within,
    is_alone,
    is_pure,
    records_of,
    short,
)

REASONING: Final = re.compile(r"(<(?:think|thinking|reasoning|scratchpad)>)(.*?)(</)", re.DOTALL)
UNSURE: Final = "I do not know."
SLOW: Final = 0.02
"""Seconds for a completion; what takes longer is not asked about so many."""
MANY: Final = 1_100
"""More completions than a step often has, and no multiple of a power of two."""


def _is_cheap(component: Component) -> bool:
    return is_alone(component) and not component.declares.get("placed") and not component.declares.get("programs")


@check("reward", claim="examples", when=is_alone, fix="Compare numbers with their sign and all of their digits.")
def signs_and_fractions(subject: Subject) -> None:
    """A text that says -42 or 42.5 does not give the answer 42, and neither does one that says 42 where it is -42.

    A pattern of digits alone loses the sign, and `int(float(x))` what is behind the point.
    """
    record, answer = good_of(subject)
    right, wrong = call_on(subject, [record, spelt(record, answer, int(answer) + 1, answer)])
    if right is None or wrong is None or not np.sum(right) > np.sum(wrong):
        raise Inapplicable("it does not tell right from wrong by the number alone")
    for said, true in ((f"-{answer}", answer), (f"{answer}.5", answer), (answer, f"-{answer}")):
        like = spelt(record, answer, said, true)
        (found,) = call_on(subject, [like])
        if found is not None and np.sum(found) > np.sum(wrong) and not np.sum(found) < np.sum(right):
            raise Failed(
                f"for the answer {true!r} the text {short(like['completions'])} gets {found!r}, as a right one"
            )


@check(
    "reward",
    claim="examples",
    when=is_alone,
    fix="Strip white space alone; str.strip(text) removes any of its letters.",
)
def words_of_all_letters(subject: Subject) -> None:
    """If it compares words, a text that gives the word is right, whichever letters it begins and ends with.

    `strip('<answer>')` takes away every a, n, s, w, e and r at both ends: no text is ever right for such answers.
    """
    record, answer = good_of(subject)
    words = ["blum", *(f"{letter}ilum{letter}" for letter in string.ascii_letters)]
    wrong, *scores = call_on(
        subject,
        [spelt(record, answer, "klum", "blum"), *(spelt(record, answer, word, word) for word in words)],
    )
    if wrong is None or scores[0] is None or not np.sum(scores[0]) > np.sum(wrong):
        raise Inapplicable("it does not compare words")
    for word, score in zip(words, scores, strict=True):
        if score is not None and not np.sum(score) > np.sum(wrong):
            raise Failed(
                f"for the answer {word!r} the text that says so gets {score!r}, which is what a wrong one gets"
            )


@check("reward", unless="abstains", when=is_pure, fix="Return 0.0 for a wrong answer; or declare abstains=True.")
def a_wrong_answer_is_scored(subject: Subject) -> None:
    """A completion in which no answer is found gets a score, as one with a wrong answer does, unless declared
    abstains=True.

    Completions without a score are left out: a policy that never answers is not told that this is bad.
    """
    pairs = subject.declared.get("examples", ())
    if not pairs:
        raise Inapplicable("it has no examples")
    for good, bad in pairs:
        records = [dict(record) for record in (good, bad)]
        right, wrong, other = call_on(subject, [*records, dict(good) | {"completions": UNSURE}])
        if None not in (right, wrong) and other is None:
            raise Failed(f"{UNSURE!r} has no score; {short(good['completions'])} gets {right!r}")


@check("reward", when=_is_cheap, fix="Take the same part of every column, or zip(..., strict=True).")
def however_many(subject: Subject) -> None:
    """Each of 1,100 completions gets what it gets among a few.

    Parts of a batch that are scored one after the other must have their own answers, and the last part counts, too.
    """
    asks_of_many_texts(subject)
    records = records_of(subject)
    with contextlib.suppress(Inapplicable):  # others' answers, each right and wrong
        record, answer = good_of(subject)
        records += [spelt(record, answer, number, number + wrong) for number in (1_301, 2_417) for wrong in (0, 1)]
    began = time.perf_counter()
    first: list[Any] = [call_on(subject, [record])[0] for record in records]
    if time.perf_counter() - began > SLOW * len(records):  # it may ask a server, which may cost money
        raise Inapplicable(f"it takes more than {1000 * SLOW:g} ms for a completion")
    # in runs of different lengths, so that no part of the batch is like another
    order = [number * number // 7 % len(records) for number in range(MANY)]
    found = call_on(subject, [records[number] for number in order])
    if len(found) != MANY:
        raise Failed(f"for {MANY} completions it returns {len(found)} results")
    for place, number in enumerate(order):
        if not equal_within(found[place], first[number], ROUNDING):
            text = short(records[number]["completions"])
            raise Failed(f"as number {place} of {MANY}, {text} gets {found[place]!r}, but {first[number]!r} by itself")


@check(
    "reward",
    claim="examples",
    reads=["prompts"],
    when=is_alone,
    fix="Look for the answer in the completion alone.",
)
def the_prompt_is_no_answer(subject: Subject) -> None:
    """A completion without an answer gets no more than a wrong one, also where the prompt has the right number.

    Read from prompt and completion together, a question that names its answer is solved by saying nothing.
    """
    record, answer = good_of(subject)
    wrong = spelt(record, answer, NUMBERS[0], answer)
    asked = [f"Is it {answer}?", f"{record.get('prompts', 'What is it?')} {answer} "]
    for prompt in asked:
        low, *found = call_on(
            subject,
            [each | {"prompts": prompt} for each in (wrong, *(record | {"completions": t} for t in ("", "Yes.")))],
        )
        if low is not None and any(each is not None and np.sum(each) > np.sum(low) + ROUNDING for each in found):
            raise Failed(f"for the prompt {prompt!r} a wrong answer gets {low!r}, and none at all {found}")


@check("reward", claim="examples", when=is_alone, fix="Let a dot match line breaks too: re.DOTALL.")
def reasoning_has_lines(subject: Subject) -> None:
    """Line breaks in what stands between <think> tags, or the like, change no score.

    Reasoning has many lines. A pattern whose dot stops at the first of them gives it the score of what has no form.
    """
    records = [record for record in records_of(subject) if REASONING.search(str(record["completions"]))]
    if not records:
        raise Inapplicable("no pair of its `examples` has reasoning in tags, such as '<think>6 times 7</think>42'")
    broken = [
        record | {"completions": REASONING.sub(r"\1\n\2\nSo it is.\n\3", record["completions"])} for record in records
    ]
    for record, ours, theirs in zip(broken, call_on(subject, broken), call_on(subject, records), strict=True):
        if not equal_within(ours, theirs, ROUNDING):
            raise Failed(f"{short(record['completions'])} gets {ours!r}, and with its reasoning in one line {theirs!r}")


def _counts_words(component: Component) -> bool:
    """Tell whether a hyperparameter is a number of words, by its line in the docstring, and no letters are counted."""
    if re.search(r"\b(letters?|characters?|syllables?)\b", component.doc, re.IGNORECASE):
        return False
    numbers = [name for name, value in component.params.items() if type(value) in (int, float)]
    return is_alone(component) and any(re.search(r"\bwords\b", said_of(component, name)) for name in numbers)


@check("reward", when=_counts_words, fix="Count words, len(text.split()), and not characters.")
def words_are_counted(subject: Subject) -> None:
    """If a number is one of words, by its line in the docstring, longer words change nothing.

    Characters in place of words make a limit four times as strict.
    """
    like = records_of(subject)[0]
    for count in (1, 3, 10, 40, 150, 600):
        short_ones, long_ones = (
            call_on(subject, [like | {"completions": " ".join(f"{word}{number}" for number in range(count))}])[0]
            for word in ("a", "extraordinarily")
        )
        if not equal_within(short_ones, long_ones, ROUNDING):
            raise Failed(f"{count} short words get {short_ones!r}, and as many long ones {long_ones!r}")


CASE: Final = {"ignore_case": True, "case_sensitive": False}
"""Settings that decide whether upper and lower case are alike, with the value for which they are."""


@check(
    "reward",
    claim="examples",
    when=lambda component: is_alone(component) and bool({*CASE} & {*component.params}),
    fix="Put both in lower case where `ignore_case` is true, and neither where it is not.",
)
def case_is_a_setting(subject: Subject) -> None:
    """With `ignore_case` an answer in capitals is as good as one without, and without it is not.

    A setting that nothing looks at, or that is read the other way round, rewards the wrong spelling.
    """
    right, wrong, upper = _in_another_case(subject)
    for name in sorted({*CASE} & {*subject.component.params}):
        for alike in (True, False):
            value = CASE[name] if alike else not CASE[name]
            good, bad, found = call_on(
                Subject(subject.component, {**subject.given, name: value}), [right, wrong, upper]
            )
            if good is None or bad is None or found is None or not np.sum(good) > np.sum(bad):
                raise Inapplicable("it does not compare words")
            if equal_within(found, good, ROUNDING) != alike:
                raise Failed(
                    f"with '{name}' = {value} {short(upper['completions'])} gets {found!r}, and"
                    f" {short(right['completions'])} {good!r}"
                )


def _in_another_case(subject: Subject) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return a record that is right, one that is wrong, and the right one with its answer in the other case."""
    for good, bad in subject.declared["examples"]:
        answer = good.get("answer")
        if isinstance(answer, str) and answer.swapcase() != answer and answer in good["completions"]:
            text = good["completions"].replace(answer, answer.swapcase())
            return dict(good), dict(bad), dict(good) | {"completions": text}
    record, number = good_of(subject)
    right, wrong, upper = (spelt(record, number, word, "blum") for word in ("blum", "klum", "BLUM"))
    return right, wrong, upper
