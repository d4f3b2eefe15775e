"""Claims about rewards beside others: each completion goes with its own columns, and no score leaves its range."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ranges import plain
from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.given import GIVEN
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.announced import promised
from dovetail_kit.conformance.suites.hyperparameters import others
from dovetail_kit.conformance.suites.texts import (
    REWARDS,
    ROUNDING,
    asks_of_many_texts,
    call_on,
    equal_within,
    is_alone,
    is_pure,
    records_of,
    short,
    starts_processes,
)

FEW: Final = 4
"""So many of the known completions are asked about again with other columns."""
SLACK: Final = 1e-6
NUMBERS: Final = ("0", "41", "43", "0.001", "-1000000", "1000000")
MOST_WORDS: Final = 60
OF_TOKENS: Final = ("tokens", "logps", "ends")
"""What belongs to the tokens of a text, and not to those of another one."""


def _is_local(component: Component) -> bool:
    return is_alone(component) and not component.declares.get("placed") and not component.declares.get("programs")


@check(
    *REWARDS,
    claim="examples",
    when=_is_local,
    fix="Take a row's own columns, zip(completions, answer, strict=True): not those of the first row, nor of the last"
    " one with the same text.",
)
def columns_of_its_own(subject: Subject) -> None:
    """A completion gets what it gets alone where the others of a batch have other columns, also one with the same text.

    Examples that all have the same answer look the same whichever row the answer is taken from.
    """
    asks_of_many_texts(subject)
    known = records_of(subject)[: 2 * len(subject.declared["examples"])][-FEW:]
    for name in sorted({column for record in known for column in record} - {*GIVEN, "completions"}):
        other = [changed for record in known for changed in _with_other(record, name, known)]
        rows = [(record, value) for record in (*known, *other) for value in _alone(subject, record)]
        # twice, so that the first and the last row is one of either kind
        for order in (rows, rows[::-1]):
            found = call_on(subject, [record for record, _ in order])
            for (record, expected), value in zip(order, found, strict=False):
                if not equal_within(value, expected, ROUNDING):
                    raise Failed(
                        f"{short(record['completions'])} with {name} = {short(str(record[name]))} gets {value!r} beside"
                        f" rows with another '{name}', and {expected!r} by itself"
                    )


def _with_other(record: Mapping[str, Any], name: str, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record with other values of a column: those of the other examples, and one that is made of its own."""
    value = record.get(name)
    given = [other[name] for other in known if name in other and repr(other[name]) != repr(value)]
    for changed in (*given[:2], *_made_of(value)):
        yield dict(record) | {name: changed}


def _made_of(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (str(int(value) + 1),) if re.fullmatch(r"[0-9]{1,15}", value) else (f"{value} too",)
    if isinstance(value, bool) or value is None:
        return ()
    if isinstance(value, int | float):
        return (value + 1,)
    if isinstance(value, list | tuple):
        return value[::-1], value[:-1], type(value)(changed for each in value for changed in _made_of(each)[:1])
    return ()


def _alone(subject: Subject, record: dict[str, Any]) -> Iterator[Any]:
    """Yield what a completion gets by itself; nothing if its columns are not ones that the component can read."""
    with contextlib.suppress(Exception):
        (found,) = call_on(subject, [record])
        yield found


@check("reward", claim="range", when=is_pure, fix="Declare the lowest and the highest possible score.")
def within_range(subject: Subject) -> None:
    """No score is outside the declared range.

    Weights, bounds and pass rates of a config are chosen by the range that is declared.
    """
    low, high = subject.declared["range"]
    _see_that_within(subject, low, high, "outside")


@check(
    *REWARDS,
    name="keeps_its_word",
    when=lambda component: is_pure(component) and promised(component) is not None,
    fix="Compare the formula in the docstring with the code, term by term; or correct what the docstring says.",
)
def scores_keep_its_word(subject: Subject) -> None:
    """If the section `Returns:` says "between 0 and 1", or "not negative", its numbers are.

    A share of another total leaves the range that a share has, and so does what is counted twice.
    """
    found = promised(subject.component)
    assert found is not None
    _see_that_within(subject, *found, "and its docstring promises")


def _see_that_within(subject: Subject, low: float, high: float, told: str) -> None:
    for record, value in _scored(subject):
        numbers = np.asarray([] if value is None else value, float)
        if numbers.size and not (low - SLACK <= numbers.min() and numbers.max() <= high + SLACK):
            raise Failed(f"{short(record['completions'])} gets {short(repr(value))}, {told} {low:g} to {high:g}")


def _scored(subject: Subject) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield records with their scores: known ones, with other numbers, with words that come again, and with columns of
    such words.
    """
    known = records_of(subject)
    bare = [{name: value for name, value in record.items() if name not in OF_TOKENS} for record in known]
    records = list(known)
    if not starts_processes(subject):
        records += [record | {"completions": _other_number(record, number)} for record in bare for number in NUMBERS]
        records += [record | {"completions": text} for record in bare for text in _repeated(record)]
    yield from zip(records, call_on(subject, records), strict=True)
    columns = sorted({name for record in bare for name in record} - {*GIVEN, "completions"})
    if starts_processes(subject) or not _is_local(subject.component) or len(columns) != 1:
        return  # columns that belong together cannot be changed one at a time
    for record in bare[:FEW]:
        for value in _doubled(record.get(columns[0])):
            for text in (record["completions"], _first_word(value)):
                changed = record | {columns[0]: value, "completions": text}
                yield from ((changed, score) for score in _alone(subject, changed))


def _other_number(record: dict[str, Any], number: str) -> str:
    return re.sub(r"-?\d+(\.\d+)?", number, str(record["completions"]))


def _repeated(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a completion whose words come twice, one after the other or all over again, and turned round."""
    for text in (record["completions"], record.get("answer")):
        if isinstance(text, str) and 1 < len(text.split()) < MOST_WORDS:
            yield from (text, f"{text} {text}", " ".join(text.split()[::-1]))
            yield " ".join(word for word in text.split() for _ in range(2))


def _first_word(value: Any) -> str:
    """Return the first word of a text, or of the first text of a list."""
    first = value if isinstance(value, str) or not value else value[0]
    return " ".join(str(first).split()[:1])


def _doubled(value: Any) -> tuple[Any, ...]:
    """Return a text, or a list of texts, whose parts come twice, or of which there is one."""
    if isinstance(value, str):
        words = value.split()
        return (f"{value} {value}", " ".join(word for word in words for _ in range(2)), *words[:1])
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return type(value)([*value, *value]), value[:1]
    return ()


@check(
    *REWARDS,
    when=is_pure,
    fix="Let the key of what is kept have the hyperparameters in it, too, or keep nothing from call to call.",
)
def settings_share_nothing(subject: Subject) -> None:
    """What it keeps of a text, or of an answer, with one value of a hyperparameter is not what it says with another.

    The trials of a sweep share a process: the first one to see a question would answer for all.
    """
    asks_of_many_texts(subject)
    spaces = itertools.count(1)

    def anew(record: Mapping[str, Any]) -> dict[str, Any]:
        count = next(spaces)
        return {name: f"{value}{' ' * count}" if isinstance(value, str) else value for name, value in record.items()}

    for record in records_of(subject)[:FEW]:
        for name, value in _other_settings(subject):
            first, second, third, fourth = (anew(record) for _ in range(4))
            with contextlib.suppress(DovetailError, Inapplicable, ValueError):
                there = [call_on(subject, [first], **{name: value})[0], call_on(subject, [third], **{name: value})[0]]
                here = [call_on(subject, [each])[0] for each in (second, fourth)]
                # white space must make no difference, and the setting some
                if not _same(*there) or not _same(*here) or _same(there[0], here[0]):
                    continue
                found = call_on(subject, [first])[0], call_on(subject, [second], **{name: value})[0]
                if not _same(found[0], here[0]) or not _same(found[1], there[0]):
                    raise Failed(
                        f"{short(record['completions'])} gets {here[0]!r}, and {there[0]!r} with '{name}' = {value!r};"
                        f" once it has been asked with the other, {found[0]!r} and {found[1]!r}"
                    )


def _same(one: Any, other: Any) -> bool:
    return equal_within(one, other, ROUNDING)


def _other_settings(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield other values of hyperparameters: of numbers, of what is true or false, and of one of several words."""
    component = subject.component
    for name, value in subject.params.items():
        hint = plain(component.hints[name])
        if name in component.common:
            continue
        if isinstance(value, bool):
            yield name, not value
        elif isinstance(value, int | float):
            yield from ((name, other) for other in others(component, name, value)[:3])
        elif get_origin(hint) is Literal:
            yield from ((name, word) for word in get_args(hint) if word != value)
