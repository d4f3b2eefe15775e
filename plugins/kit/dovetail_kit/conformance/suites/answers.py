"""Claims about rewards that look for an answer: which text counts, and that no text is run."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.texts import (
    REWARDS,
    ROUNDING,
    call_apart,
    call_on,
    equal_within,
    is_alone,
    is_pure,
    records_of,
    short,
    starts_processes,
)

ANSWERS = ("answer", "answers", "target", "truth", "ground_truth", "solution", "label", "gold", "expected", "reference")
"""Names of the column that has the right answer."""
NUMBERS = (1_373_531, 2_486_420, 3_597_539, 4_606_648)
"""No completion of any other check has these."""
APART = ("1", "10", "100", "42", "1.5", "15", "7", "-7")
MINUS = "\N{MINUS SIGN}7"
"""-7 as some models write it: who does not read this minus says nothing, rather than 7."""
WITHOUT_BUILTINS = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
    ".__init__.__globals__['mkdir']('%s')"
)
"""An expression that makes a folder, also where `eval` is called without builtins."""
FORMS = ("{}", "It is {}.", "The answer is {}.", "Answer: {}", "<answer>{}</answer>", "#### {}", r"\boxed{{{}}}")
"""Forms of an answer that are common."""


def good_of(subject: Subject) -> tuple[dict[str, Any], str]:
    """Return a record that is right because its text has the answer, which is a number, and the answer.

    Raises:
        Inapplicable: if no example is of that form.
    """
    for record, _ in subject.declared.get("examples", ()):
        for answer in _numbers_in(record.get(_column_of(record))):
            if re.search(rf"\b{answer}\b", record["completions"]) and _is_compared(subject, record, answer):
                return dict(record), answer
    raise Inapplicable("no example has an answer that is a number and stands in the completion")


def _is_compared(subject: Subject, record: dict[str, Any], answer: str) -> bool:
    """Tell whether the answer is what decides. A text in the column `answer` is taken for that; a number in another
    column may be the sum that an equation is to have, and one of a list may be one of several that are all wanted.
    """
    if isinstance(record.get(ANSWERS[0]), str):
        return True
    other = NUMBERS[0]
    wrong, right = (spelt(record, answer, other, true) for true in (answer, other))
    good, bad, as_good = call_apart(subject, [dict(record), wrong, right])
    if None in (good, bad, as_good):
        return False
    return bool(np.sum(bad) < np.sum(good)) and equal_within(as_good, good, ROUNDING)


def _column_of(record: dict[str, Any]) -> str:
    """Return the column with the right answer, which not everybody calls `answer`."""
    found = [name for name in ANSWERS if name in record]
    return found[0] if len(found) == 1 else ANSWERS[0]


def _numbers_in(answer: Any) -> list[str]:
    """Return the digits of an answer that is a whole number, a text of one, or one of several that are as good."""
    given = answer if isinstance(answer, list | tuple) else [answer]
    return [str(each) for each in given if type(each) in (int, str) and re.fullmatch(r"[0-9]+", str(each))]


def spelt(record: dict[str, Any], answer: str, said: Any, true: Any) -> dict[str, Any]:
    """Return a record with another number in its text, and another answer, of the type that its answers have.

    Raises:
        Inapplicable: if its answers are whole numbers, and this one is not.
    """
    text, column = re.sub(rf"\b{answer}\b", str(said), record["completions"]), _column_of(record)
    return record | {"completions": text, column: _of_its_type(record[column], str(true))}


def _of_its_type(like: Any, true: str) -> Any:
    if isinstance(like, list | tuple):
        return type(like)([_of_its_type(like[0], true)])
    if isinstance(like, str):
        return true
    if not re.fullmatch(r"-?[0-9]+", true):
        raise Inapplicable("the answer of its first pair with a number is no text, such as '42', but a whole number")
    return int(true)


@check(
    "reward", claim="examples", when=is_alone, fix="Keep nothing by the text of a completion alone, or nothing at all."
)
def nothing_is_kept(subject: Subject) -> None:
    """The same text scores differently for different questions, whatever was asked before, and also when repeated.

    A cache between calls whose key omits the right answer would reward any text that was right somewhere before.
    """
    record, answer = good_of(subject)
    first, second, third, wrong = NUMBERS
    right_first = [spelt(record, answer, first, first), spelt(record, answer, first, wrong)]
    right_last = [spelt(record, answer, second, wrong), spelt(record, answer, second, second)]
    apart = [spelt(record, answer, third, wrong)], [spelt(record, answer, third, third)]
    ours, theirs = call_on(subject, right_first), call_on(subject, right_last)[::-1]
    again = call_on(subject, right_first + right_first)
    for found, what in ((again[:2], "a second time"), (again[2:], "a third time")):
        if not all(equal_within(a, b, ROUNDING) for a, b in zip(ours, found, strict=True)):
            raise Failed(f"a right and a wrong answer get {ours}, and {what} {found}")
    bad, good = (call_on(subject, each)[0] for each in apart)
    for found, what in ((theirs, "in another order"), ([good, bad], "in calls of their own, the wrong one first,")):
        if not _alike(ours, found):
            raise Failed(f"a right and a wrong answer get {ours}, and other ones {what} {found}")


def _alike(ours: list[Any], theirs: list[Any]) -> bool:
    """Tell whether right answers get the same, and wrong ones get as much, or less: how much may depend on how wrong
    they are.
    """
    (right, wrong), (other, worse) = ours, theirs
    if not equal_within(right, other, ROUNDING) or (wrong is None) != (worse is None):
        return False
    if right is None or wrong is None:
        return True
    return bool(np.sum(wrong) < np.sum(right) - ROUNDING) == bool(np.sum(worse) < np.sum(other) - ROUNDING)


@check(
    "reward",
    claim="examples",
    when=is_alone,
    fix="Normalise the answer and the text in the same way, and compare |a - b| with a tolerance of |b|.",
)
def right_whatever_the_number(subject: Subject) -> None:
    """A text that gives the answer as it is written is right: with a sign, or with separators of thousands.

    Where only one of the two is normalised, no completion is ever right for such an answer.
    """
    record, answer = good_of(subject)
    (right,), (wrong,) = (call_on(subject, [spelt(record, answer, said, NUMBERS[0])]) for said in NUMBERS[:2])
    if right is None or wrong is None or not np.sum(right) > np.sum(wrong):
        raise Inapplicable("it does not tell right from wrong by the number alone")
    for written in (f"-{NUMBERS[0]}", f"{NUMBERS[0]:,}"):
        (found,) = call_on(subject, [spelt(record, answer, written, written)])
        if found is not None and not np.sum(found) > np.sum(wrong):
            raise Failed(
                f"for the answer {written!r} the text {short(spelt(record, answer, written, '')['completions'])}"
                f" gets {found!r}, which is what a wrong one gets"
            )


@check("reward", claim="examples", when=is_alone, fix="Compare integers as integers, or in double precision.")
def tells_large_numbers_apart(subject: Subject) -> None:
    """16777217 is not 16777216, if it tells numbers apart that differ by a millionth.

    They are the same number in single precision.
    """
    record, answer = good_of(subject)
    for base in (1_000_000, 2**24):
        right, wrong = call_on(subject, [spelt(record, answer, base, base), spelt(record, answer, base + 1, base)])
        if right is None or wrong is None or not np.sum(right) > np.sum(wrong):
            if base == 2**24:
                raise Failed(
                    f"for the answer {base}, a text that says {base + 1} gets {wrong!r}, and one that says"
                    f" {base} {right!r}"
                )
            raise Inapplicable("numbers that differ by a millionth are alike to it")


@check("reward", claim="examples", when=is_pure, fix="Compare whole answers: 42 is not the answer 421.")
def the_whole_answer(subject: Subject) -> None:
    """A number that contains the answer is not the answer, and neither is its beginning, or it read backwards.

    As a substring, 42 occurs in 421, and in every sufficiently long sequence of digits.
    """
    record, answer = good_of(subject)
    wrong = [f"{answer}1", f"1{answer}", f"9{answer}9", *([answer[:-1]] if len(answer) > 1 else [])]
    wrong += [answer[::-1]] if answer[::-1] != answer else []
    good, *others = call_apart(subject, [spelt(record, answer, said, answer) for said in (answer, *wrong)])
    if not is_alone(subject.component):
        (other,) = call_on(subject, [spelt(record, answer, NUMBERS[0], answer)])
        if None in (good, other) or not np.sum(other) < np.sum(good):
            raise Inapplicable("by itself a right completion gets no more than a wrong one")
    for said, score in zip(wrong, others, strict=True):
        if score is not None and good is not None and not np.sum(score) < np.sum(good):
            raise Failed(f"the answer is {answer}, and {said} gets {score!r} as well")


@check("reward", claim="examples", when=is_pure, fix="Compare whole words, or whole items: `a in b` is true of a part.")
def a_part_is_not_the_word(subject: Subject) -> None:
    """A word of the answer that has lost its first letter, or its last, is not that word, unless others are as good.

    Every part of the answer would be right, a single letter too. An answer with digits is left to other checks.
    """
    for record, _ in subject.declared.get("examples", ()):
        answer, text = record.get("answer"), record["completions"]
        shared = set(re.findall(r"[A-Za-z]{3,}", str(answer))) & set(re.findall(r"[A-Za-z]{3,}", text))
        if not shared or re.search(r"\d", str(answer)):
            continue
        word = max(sorted(shared), key=len)
        said = (word, word[1:], word[:-1], f"{word[:-1]}{'x' if word[-1] != 'x' else 'y'}")
        records = [record | {"completions": re.sub(rf"\b{word}\b", each, text)} for each in said]
        good, *parts, other = call_apart(subject, records)
        if None in (good, *parts, other) or not np.sum(other) < np.sum(good):
            continue  # it does not compare words, or not exactly
        if all(np.sum(part) >= np.sum(good) for part in parts):
            raise Failed(f"{short(records[1]['completions'])} gets {parts[0]!r} for the answer {short(str(answer))}")


@check(
    "reward",
    claim="examples",
    unless="any_answer",
    when=is_alone,
    fix="Decide which answer counts, the last one say, and compare that one alone; or declare any_answer=True.",
)
def one_answer_counts(subject: Subject) -> None:
    """A completion with a right and a wrong answer is not right in both orders.

    Otherwise a policy learns to write down several answers, which costs it nothing.
    """
    record, answer = good_of(subject)
    texts = [record["completions"], spelt(record, answer, NUMBERS[0], answer)["completions"]]
    right, *scores = call_on(
        subject,
        [record, *(record | {"completions": f"{first}\n{last}"} for first, last in (texts, texts[::-1]))],
    )
    if right is not None and all(score is not None and score >= right for score in scores):
        raise Failed(f"{short(texts[0])} gets {right!r}, and with a wrong answer before or after it {scores}")


@check("reward", claim="abstains", when=is_pure, fix="Return None where the answer is None.")
def no_answer_no_score(subject: Subject) -> None:
    """Where an example has no answer (None), it abstains, there alone.

    A missing answer that counts as a wrong one teaches the policy that all its answers to that question are bad.
    """
    given = records_of(subject)
    records: list[dict[str, Any]] = [record | {"answer": None} for record in given]
    for record, found in zip(records, call_on(subject, records), strict=True):
        if found is not None:
            raise Failed(f"where the answer is None, {short(record['completions'])} gets {found!r}")
    if "group_ids" in subject.component.reads:
        return
    expected, beside = call_on(subject, given), call_on(subject, [*given, *records])[: len(given)]
    for record, ours, theirs in zip(given, beside, expected, strict=True):
        if not equal_within(ours, theirs, ROUNDING):
            told = f"{ours!r} instead of {theirs!r}"
            raise Failed(f"beside others without an answer, {short(record['completions'])} gets {told}")


@check(
    "reward",
    claim="abstains",
    when=is_alone,
    fix="Compare with None, and with the empty text if that means no answer: `if answer is None`, not `if not answer`."
    " What has no ratio to zero, or no logarithm, can still tell whether a completion says zero.",
)
def zero_is_an_answer(subject: Subject) -> None:
    """If it takes numbers as answers, it scores a completion also where the right answer is the number 0.

    `if not answer` takes zero for a missing answer: no completion to such a question is ever scored.
    """
    like = [record for record in records_of(subject) if str(record.get("answer", "")).lstrip("-").isdigit()]
    if not like:
        raise Inapplicable("no example has an answer that is a number")
    for form in (int, float):
        five, zero = call_on(subject, [like[0] | {"answer": form(number)} for number in (5, 0)])
        if five is not None and zero is None:
            raise Failed(
                f"where the answer is {form(5)!r} a completion gets {five!r}, and where it is {form(0)!r} none"
            )


def _relative(component: Component) -> str | None:
    """Return the number by which an answer may be off, if the docstring calls it relative."""
    names = [name for name in component.params if re.search(r"tol", name)]
    return names[0] if names and re.search(r"\brelative\b", component.doc) else None


@check(
    "reward",
    claim="examples",
    when=lambda component: is_alone(component) and _relative(component) is not None,
    fix="Multiply it by the answer: abs(found - true) <= tolerance * abs(true).",
)
def relative_to_the_answer(subject: Subject) -> None:
    """With a `tolerance` that its docstring calls relative, an answer of a million may be off by half of that share.

    Taken for a difference, it refuses every large answer that is nearly right, and takes a small one that is not.
    """
    record, answer = good_of(subject)
    name, true = _relative(subject.component), 1_000_000
    share = subject.params[name or ""]
    if not isinstance(share, float) or not 1e-5 < share < 1:
        raise Inapplicable(f"'{name}' is {share!r}")
    said = (true, true + int(0.5 * share * true), true + int(2 * share * true), 2 * true)
    right, near, far, wrong = call_on(subject, [spelt(record, answer, each, true) for each in said])
    if None in (right, near, far, wrong) or not np.sum(right) > np.sum(wrong):
        raise Inapplicable("it does not tell right from wrong by the number alone")
    if not np.sum(near) > np.sum(wrong):
        raise Failed(f"with '{name}' = {share:g}, for the answer {true} a text that says {said[1]} gets {near!r}")


@check("reward", claim="last_answer", when=is_alone, fix="Take the last match, not the first: re.findall(...)[-1].")
def the_last_answer(subject: Subject) -> None:
    """If a completion gives two answers, the last one counts.

    A completion that corrects itself would be scored by its mistake.
    """
    record, answer = good_of(subject)
    wrong = spelt(record, answer, NUMBERS[0], answer)["completions"]
    right = record["completions"]
    ends_well, ends_badly = (
        record | {"completions": f"{first}\n{last}"} for first, last in ((wrong, right), (right, wrong))
    )
    better, worse = call_on(subject, [ends_well, ends_badly])
    if better is None or worse is None or not better > worse:
        raise Failed(f"{short(ends_well['completions'])} gets {better!r}, and the other way round {worse!r}")


def _counts_the_last(component: Component) -> bool:
    return is_pure(component) and component.declares.get("last_answer", True)


def _answered(subject: Subject, form: str, *said: str) -> Any:
    """Return the answer of a completion that says these, one in a line, in this form."""
    return call_on(subject, [{"completions": "\n".join(form.format(each) for each in said)}])[0]


@check(
    "answer",
    name="the_last_answer",
    when=_counts_the_last,
    fix="Take the last match, not the first: re.findall(...)[-1]; or declare last_answer=False.",
)
def the_last_answer_votes(subject: Subject) -> None:
    """If a completion gives two answers in the same form, the first one is not its answer, unless declared
    last_answer=False.

    Numbers of the reasoning come first: a vote among completions would count steps, not results.
    """
    for form in (*FORMS, "({})", "The answer is ({})."):
        for one, other in (("7", "42"), ("A", "B")):
            first, last, both = (_answered(subject, form, *said) for said in ((one,), (other,), (one, other)))
            if None not in (first, last) and first != last and both == first:
                raise Failed(f"{form.format(one)!r} and then {form.format(other)!r} has the answer {both!r}")


def _is_number(answer: Any) -> bool:
    """Tell whether an answer is a number and nothing else; None, that there is no answer, is none."""
    try:
        float(answer)
    except (TypeError, ValueError):
        return False
    return True


@check("answer", fix="Convert what is a number, decimal.Decimal(text).normalize() say, and return its text.")
def numbers_vote_alike(subject: Subject) -> None:
    """A number is the same answer however it is spelt: 42 and 42.0.

    The votes of completions that agree would be split among spellings. An answer that is more than a number, such as
    the whole sentence, is as its author has it.
    """
    for form in FORMS:
        plain, other, longer = (_answered(subject, form, said) for said in ("42", "43", "42.0"))
        if plain not in (other, longer) and all(_is_number(answer) for answer in (plain, other, longer)):
            raise Failed(f"{form.format('42')!r} has the answer {plain!r}, and {form.format('42.0')!r} has {longer!r}")


@check(
    "answer",
    fix="Strip the zeros behind a decimal point, and no others; compare with None; read the sign before the number.",
)
def other_numbers_vote_apart(subject: Subject) -> None:
    """Numbers that differ are different answers: 1, 10 and 100, 1.5 and 15, 7 and -7; and zero is one.

    Votes for one number would be counted for another, and those for zero not at all.
    """
    for form in FORMS:
        votes = {said: _answered(subject, form, said) for said in APART}
        if None in votes.values() or len({votes[said] for said in ("1", "42")}) < 2:
            continue  # it does not read this form
        zero, minus = (_answered(subject, form, said) for said in ("0", MINUS))
        if zero is None:
            raise Failed(f"{form.format('1')!r} has the answer {votes['1']!r}, and {form.format('0')!r} none")
        if minus == votes["7"]:
            raise Failed(f"{form.format(MINUS)!r} has the answer {minus!r}, as {form.format('7')!r} has")
        for said, answer in (votes | {"0": zero}).items():
            alike = [other for other, theirs in votes.items() if theirs == answer and other != said]
            if alike:
                raise Failed(f"{form.format(said)!r} and {form.format(alike[0])!r} both have the answer {answer!r}")


@check(*REWARDS, when=is_pure, fix="Parse numbers and literals; never eval, exec or import what a completion says.")
def runs_no_code(subject: Subject) -> None:
    """A completion that is code is read, not run: it leaves no file behind and changes no variable.

    Policies in training write anything, and evaluated text would run with the privileges of the user.
    """
    like = records_of(subject)[0]
    with tempfile.TemporaryDirectory() as folder:
        sentinel = Path(folder) / "sentinel"
        touch = f"__import__('pathlib').Path({str(sentinel)!r}).touch()"
        forms = ("{}", "<answer>{}</answer>", r"\boxed{{{}}}", "#### {}", "```python\n{}\n```")
        code = [form.format(each) for each in (WITHOUT_BUILTINS % str(sentinel), touch) for form in forms]
        environment = dict(os.environ)
        records = [like | {"completions": text} for text in (code[-1:] if starts_processes(subject) else code)]
        if subject.declared.get("examples") and isinstance(like.get("answer"), str):
            records.append(like | {"answer": touch})
        try:
            call_on(subject, records)
        except Inapplicable:
            raise
        except Exception as error:
            if sentinel.exists():
                raise Failed(f"it runs the code of a completion, which then raises {type(error).__name__}") from None
            raise
        if sentinel.exists():
            raise Failed("it runs the code of a completion: a file is there that only this would have made")
        if os.environ != environment:
            raise Failed("it changes the environment of the process")


@check(
    *REWARDS,
    reads=["tokens"],
    when=is_pure,
    fix="Count tokens, len(tokens), and not the characters of the completion.",
)
def tokens_count(subject: Subject) -> None:
    """If it reads the tokens, others make a difference for the same text: fewer, or many more.

    A limit in tokens that is compared with the number of characters is met by a quarter of its length.
    """
    like = records_of(subject)[0]
    counts = (0, 1, 2, 5, 20, 100, 300, 1000, 5000, 50_000)
    found = call_on(subject, [like | {"tokens": list(range(3, 3 + count))} for count in counts])
    if all(equal_within(each, found[0], 0.0) for each in found):
        raise Failed(f"{short(like['completions'])} gets {found[0]!r} with {counts[0]} tokens and with {counts[-1]:,}")


@check(
    *REWARDS, when=is_pure, fix="Go through columns by name, or in sorted order; the order of a dict or set is chance."
)
def order_of_columns(subject: Subject) -> None:
    """The order in which a record names its columns, or a set its elements, changes nothing.

    The order of columns is that of a file, and the order of a set changes from process to process.
    """
    records = records_of(subject)
    expected = call_on(subject, [dict(record) | {"examples": dict(record)} for record in records])
    turned = [dict(reversed(record.items())) for record in records]
    found = call_on(subject, [record | {"examples": record} for record in turned])
    for record, ours, theirs in zip(records, found, expected, strict=True):
        if not equal_within(ours, theirs, 0.0):
            raise Failed(f"{short(record['completions'])} gets {theirs!r}, and with its columns turned round {ours!r}")


@check("reward_manager", unless="compares", fix="Combine the rewards of each completion by itself.")
def each_completion_by_itself(subject: Subject) -> None:
    """The score of a completion does not depend on the others in the table.

    Rounds of sampling are scored as they arrive; a reward that whitens them makes every score depend on the others.
    """
    table = np.array([[1.0, 2.0], [0.5, 0.25], [0.0, -1.0], [1.0, 0.0]])
    manager, names = subject.bind(), ("first", "second")
    whole = np.asarray(manager(table.copy(), names))
    for rows in (slice(0, 1), slice(1, 3)):
        part = np.asarray(manager(table[rows].copy(), names))
        if not np.allclose(part, whole[rows], equal_nan=True):
            raise Failed(f"the scores {whole[rows].tolist()} are {part.tolist()} where they stand alone")
