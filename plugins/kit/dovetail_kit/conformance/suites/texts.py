"""Claims about functions of texts: rewards of completions or of tokens, and what finds the answer."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.clock import TooLong, limited
from dovetail_kit.conformance.given import GIVEN, count_tokens
from dovetail_kit.conformance.hostile import HOSTILE, TRUTHS, made_of
from dovetail_kit.conformance.subject import Subject

TEXTS = ("answer", "process_reward", "reward")
REWARDS = ("process_reward", "reward")
ROUNDING = 1e-6
MADE_UP = {"prompt": "What is 6 * 7?", "answer": "42"}
"""The columns of a record where no example is declared."""
VOTES = ("it is {}", "<answer>{}</answer>", "#### {}", r"\boxed{{{}}}")
SECONDS = 20
"""Processor time for all hostile texts together; careful code takes far less than one second."""


def is_pure(component: Component) -> bool:
    """Tell whether it gives the same answer to the same text, so that it can be called here."""
    return component.declares.get("deterministic", True)


def ranks(component: Component) -> bool:
    """Tell whether it compares the completions of a prompt."""
    return is_pure(component) and "group_ids" in component.reads


def is_alone(component: Component) -> bool:
    """Tell whether it sees each completion by itself."""
    return is_pure(component) and "group_ids" not in component.reads


def records_of(subject: Subject) -> list[dict[str, Any]]:
    """Return completions with a value for each column that is read: the examples, and ordinary texts."""
    pairs = [copy.deepcopy(record) for pair in subject.declared.get("examples", ()) for record in pair]
    texts = ["42", "", "the answer is 7", "<answer>42</answer>", r"\boxed{42}", "#### 42"]
    like = pairs[0] if pairs else {}
    known = (
        (*like, *GIVEN, "completions") if pairs else (*(name for name in GIVEN if name != "examples"), "completions")
    )
    unknown = [read for read in subject.component.reads if read not in known]
    if (
        unknown
        and {*unknown} <= {*MADE_UP, "examples"}
        and subject.once("made up", lambda: _takes_what_is_made_up(subject))
    ):
        like = dict(MADE_UP)
    elif unknown:
        raise Inapplicable(
            f"it reads {', '.join(unknown)}, and the suite cannot know what these columns hold: declare"
            " examples=[({'completions': ..., ...}, {...})]"
        )
    return pairs + [dict(like) | {"completions": text} for text in texts[: 2 if starts_processes(subject) else None]]


def _takes_what_is_made_up(subject: Subject) -> bool:
    """Tell whether the column `answer`, which its author may have meant otherwise, may hold a number as text."""
    texts = ("", MADE_UP["answer"], "7", "is it?")
    try:
        found = call_on(subject, [MADE_UP | {"completions": text} for text in texts])
    except Inapplicable:
        raise
    except Exception:
        return False
    return len(found) == len(texts)


def starts_processes(subject: Subject) -> bool:
    """Tell whether it starts a process for each text, which takes long."""
    return "processes" in subject.component.params


def asks_of_many_texts(subject: Subject) -> None:
    """Skip a check that would take long with a process for each text.

    Raises:
        Inapplicable: if it starts one.
    """
    if starts_processes(subject):
        raise Inapplicable("it starts a process for each text")


def call_on(subject: Subject, records: list[dict[str, Any]], **params: Any) -> list[Any]:
    """Return what a component gives for completions with their columns."""
    return _returned(subject, _columns(subject, records), len(records), params)


def call_apart(subject: Subject, records: list[dict[str, Any]]) -> list[Any]:
    """Return what a component gives for completions, each in a call of its own if it compares those of a group."""
    if is_alone(subject.component):
        return call_on(subject, records)
    return [call_on(subject, [record])[0] for record in records]


def _columns(subject: Subject, records: list[dict[str, Any]]) -> list[list[Any]]:
    return [
        [record[read] if read in record else GIVEN[read](number, record) for number, record in enumerate(records)]
        for read in subject.component.reads
    ]


def _returned(subject: Subject, columns: list[list[Any]], count: int, params: dict[str, Any]) -> list[Any]:
    returned, _ = split_metrics(subject.bind(**params)(*columns))
    try:
        return list(returned)  # as the engine takes it: a tuple, an array or a generator is as good
    except TypeError:
        raise Failed(f"for {count} completions it returns {returned!r}") from None


@check(
    *TEXTS,
    when=is_pure,
    fix="Return a list with one float for each completion (a list of one for each of its tokens, if it is a process"
    " reward), or None to abstain.",
)
def one_for_each(subject: Subject) -> None:
    """It returns one result for each completion, a finite number or None; nothing for no completions.

    NaN is neither a score nor an abstention; return None to abstain. A completion may have no tokens. The result of a
    process reward is a list of numbers, one for each token of the completion.
    """
    records = records_of(subject)
    found = call_on(subject, records)
    if len(found) != len(records):
        raise Failed(f"for {len(records)} completions it returns {found!r}")
    for record, value in zip(records, found, strict=True):
        _fits(subject, value, record["completions"])
    if subject.component.kind == "process_reward" or {"tokens", "logps", "ends"} & {*subject.component.reads}:
        _without_tokens(subject, records[0])
    if len(call_on(subject, [])):
        raise Failed("for no completions it returns results")


def _without_tokens(subject: Subject, record: dict[str, Any]) -> None:
    empty = record | {"completions": "", "tokens": [], "logps": [], "ends": []}
    try:
        (nothing,) = call_on(subject, [empty])
    except ArithmeticError as error:
        raise Failed(f"for a completion without tokens it raises {type(error).__name__}: {error}") from None
    if subject.component.kind != "process_reward":
        _fits(subject, nothing, "")
    elif nothing is not None and len(nothing):
        raise Failed(f"a completion without tokens gets {nothing!r}")


def _fits(subject: Subject, value: Any, text: str) -> None:
    if value is None:
        return
    if subject.component.kind == "answer":
        if not isinstance(value, str | int | float):
            raise Failed(f"{short(text)} gets {value!r}")
        return
    if subject.component.kind == "process_reward":
        numbers = np.asarray(value)
        if numbers.shape != (count_tokens(text),) or numbers.dtype.kind not in "if" or not np.isfinite(numbers).all():
            raise Failed(
                f"{short(text)} gets {short(repr(value))}, not a number for each of {count_tokens(text)} tokens"
            )
        return
    if not isinstance(value, int | float | np.number | np.bool_) or not math.isfinite(value):
        raise Failed(f"{short(text)} gets {value!r}, which is neither a finite number nor None")


def short(text: str) -> str:
    """Return a text as a message quotes it."""
    return repr(text) if len(text) < 60 else f"{text[:50]!r}... ({len(text)} characters)"


@check(
    *TEXTS,
    when=is_pure,
    fix="Keep nothing between calls and draw no random numbers, or declare deterministic=False.",
)
def deterministic(subject: Subject) -> None:
    """The same completions get the same results again, also from a fresh instance.

    Otherwise greedy evaluations could not be compared, and a resumed run would not repeat itself.
    """
    records = records_of(subject)
    first = call_on(subject, records)
    for _ in range(2):
        _compare(records, first, call_on(subject, records))


@check(
    "reward",
    reads=["prompts", "answer"],
    when=is_pure,
    fix="Read the columns of the completion's own record; a cache by prompt keeps the columns of another one.",
)
def keeps_no_answers(subject: Subject) -> None:
    """A completion is scored by its own record, also if there was another one with the same prompt.

    Prompts come twice, with other answers, where a task has duplicates or a follow-up shares its first message.
    """
    records = [record for record in records_of(subject) if isinstance(record.get("answer"), str)]
    others = [record | {"answer": f"{record['answer']}0"} for record in records]
    call_on(subject, [record | {"prompts": "What is it?"} for record in records])
    again = call_on(subject, [record | {"prompts": "What is it?"} for record in others])
    _compare(others, call_on(subject, [record | {"prompts": "What is it? "} for record in others]), again)


@check(*TEXTS, when=is_alone, fix="Score each completion by itself, zip(completions, answer); or read group_ids.")
def by_itself(subject: Subject) -> None:
    """A completion gets the same result alone, among others, and in another order.

    Batches are split, shuffled and shared among workers, so the score of a completion must not depend on the others.
    """
    records = records_of(subject)
    first = call_on(subject, records)
    _compare(records[::-1], first[::-1], call_on(subject, records[::-1]))
    twice = [*records, *records]
    _compare(twice, [*first, *first], call_on(subject, twice))
    for number in range(0, len(records), 3 if starts_processes(subject) else 1):
        _compare([records[number]], [first[number]], call_on(subject, [records[number]]))


@check(*REWARDS, when=ranks, fix="Compare with the completions of the same group only, and with all of them.")
def by_its_group(subject: Subject) -> None:
    """A completion gets the same result whatever the other groups are, and in any order of completions; the same
    completion twice in a group gets it twice.

    It is arbitrary which groups share a batch, and in which order.
    """
    records = [record | {"group_ids": int(number % 3 > 0)} for number, record in enumerate(records_of(subject))]
    first = call_on(subject, records)
    # a mean of other completions may be rounded otherwise in another order
    _compare(records[::-1], first[::-1], call_on(subject, records[::-1]), ROUNDING)
    for group in (0, 1):
        rows = [number for number, record in enumerate(records) if record["group_ids"] == group]
        members = [records[number] for number in rows]
        _compare(members, [first[number] for number in rows], call_on(subject, members), ROUNDING)
    among = [*records, *records]
    twice = call_on(subject, among)
    _compare(records, twice[: len(records)], twice[len(records) :], ROUNDING)
    side_by_side = call_on(subject, [record for record in records for _ in range(2)])
    _compare(records, twice[: len(records)], side_by_side[::2], ROUNDING)
    _votes(subject, records[0])


def _votes(subject: Subject, like: dict[str, Any]) -> None:
    """Complain if, among answers of which several are given, others' answers or the order decide."""
    groups = (("4", "5"), ("5", "5", "6"), ("6", "4", "4", "6"))
    for form in VOTES:
        said = [(number, answer) for number, answers in enumerate(groups) for answer in answers]
        records = [like | {"completions": form.format(answer), "group_ids": number} for number, answer in said]
        together = call_on(subject, records)
        for number in range(len(groups)):
            rows = [row for row, record in enumerate(records) if record["group_ids"] == number]
            own = [records[row] for row in rows]
            alone = call_on(subject, own)
            _compare(own, [together[row] for row in rows], alone, ROUNDING)
            _compare(own[::-1], alone[::-1], call_on(subject, own[::-1]), ROUNDING)


def equal_within(ours: Any, theirs: Any, within: float) -> bool:
    """Tell whether two results are the same up to rounding; those that abstain, or are texts, have none."""
    if any(value is None or isinstance(value, str) for value in (ours, theirs)):
        return ours == theirs
    return np.shape(ours) == np.shape(theirs) and np.allclose(ours, theirs, rtol=within, atol=within)


def _compare(records: list[dict[str, Any]], expected: list[Any], found: list[Any], within: float = 0.0) -> None:
    for record, ours, theirs in zip(records, found, expected, strict=True):
        if not equal_within(ours, theirs, within):
            raise Failed(f"{short(record['completions'])} gets {ours!r}, but {theirs!r} before")


@check(
    *TEXTS,
    when=is_pure,
    fix="Look for regular expressions with nested or adjacent repetitions, and for those that begin with a repetition"
    " and are searched for (re.search, re.sub, re.findall), not matched: they begin anew at each place of a run; for"
    " int() of huge numbers and for recursion; catch what parsing raises, and score it as a wrong answer.",
)
def hostile_texts(subject: Subject) -> None:
    """Empty, huge and odd texts get a finite result in bounded time; a policy in training writes all of these.

    One completion that keeps a regular expression busy for minutes stalls the run, and one that raises ends it.
    """
    known = records_of(subject)
    like = known[0]
    texts = dict(list(HOSTILE.items())[::8]) if starts_processes(subject) else {**HOSTILE, **_made_of(known)}
    params = {"time_limit": 0.1} if "time_limit" in subject.component.params else {}
    records: list[dict[str, Any]] = [dict(like) | {"completions": text} for text in texts.values()]
    columns = _columns(subject, records)  # the tokens of huge texts take time, too
    try:
        with limited(SECONDS):
            found = _returned(subject, columns, len(records), params)
    except TooLong:
        slow = _slowest(subject, list(texts), columns, params)
        raise Failed(f"the hostile texts take more than {SECONDS:g} s of processor time{slow}") from None
    for label, record, value in zip(texts, records, found, strict=True):
        try:
            _fits(subject, value, record["completions"])
        except Failed as error:
            raise Failed(f"'{label}': {error}") from None


def _slowest(subject: Subject, labels: Sequence[str], columns: list[list[Any]], params: dict[str, Any]) -> str:
    """Say which text takes longest by itself, with what its completion begins; nothing if none can be told."""
    taken = dict[int, float]()
    for number in range(len(labels)):
        began, most = time.process_time(), SECONDS / 4
        with contextlib.suppress(Exception, TooLong), limited(most):  # one that raises is told of once it is in time
            _returned(subject, [[column[number]] for column in columns], 1, params)
        taken[number] = time.process_time() - began
        if taken[number] >= most:
            break
    slowest = max(taken, key=lambda number: taken[number])
    text = (
        columns[subject.component.reads.index("completions")][slowest]
        if "completions" in subject.component.reads
        else ""
    )
    return f", most of it for '{labels[slowest]}', {short(text)}"


def _made_of(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return hostile texts made of the first completion that is known to be right."""
    completion = records[0]["completions"]
    return made_of(completion) if isinstance(completion, str) else {}


@check(
    "reward",
    claim="examples",
    when=is_pure,
    fix="Convert with care: try float(...), and abstain (None) where the answer is None.",
)
def odd_answers(subject: Subject) -> None:
    """Numbers, texts, the empty text and None in the dataset column `answer` get a finite score or an abstention.

    A column read from JSON holds whatever its author wrote: 42, "42", "", null.
    """
    asks_of_many_texts(subject)
    records = records_of(subject)
    if "answer" not in subject.component.reads:
        raise Inapplicable("it reads no column `answer`")
    if not any(isinstance(record.get("answer"), str) for record in records):
        raise Inapplicable("no pair of its `examples` has a text in the column `answer`")
    for truth in TRUTHS:
        odd: list[dict[str, Any]] = [record | {"answer": truth} for record in records]
        for record, value in zip(odd, call_on(subject, odd), strict=True):
            try:
                _fits(subject, value, record["completions"])
            except Failed as error:
                raise Failed(f"with answer = {truth!r}: {error}") from None


@check(*REWARDS, claim="examples", fix="Correct the reward, or the example.")
def examples(subject: Subject) -> None:
    """In every pair of examples the good completion scores higher than the bad one; numbers of tokens are added up.

    A reward that ranks the author's own examples otherwise teaches the opposite of what its name says.
    """
    for good, bad in subject.declared["examples"]:
        best, worst = (value if value is None else np.sum(value) for value in call_on(subject, [good, bad]))
        if best is None or worst is None or not best > worst:
            raise Failed(f"{short(good['completions'])} gets {best!r}, and {short(bad['completions'])} gets {worst!r}")


@check("reward_manager", fix="Use np.nansum and the like on the table, and return NaN where a whole row is NaN.")
def combines(subject: Subject) -> None:
    """It returns one score per completion, NaN only where every reward abstained, and does not change the table.

    NaN in the table is an abstention. Treated as zero, it would penalise a completion that no reward has scored. A
    manager that needs all rewards declares needs_all=True, and returns NaN where any of them abstained; one that needs
    the first declares needs_first=True.
    """
    table = np.array([[1.0, 2.0], [np.nan, 0.5], [np.nan, np.nan], [0.0, -1.0], [0.0, np.nan]])
    names = ("first", "second")
    before = table.copy()
    manager = subject.bind()
    scores = np.asarray(manager(table, names))
    if scores.shape != (len(table),):
        raise Failed(f"a table of {len(table)} completions gets scores of shape {list(scores.shape)}")
    if not np.array_equal(table, before, equal_nan=True):
        raise Failed("it changes the table")
    missing = np.isnan(table)
    abstained = missing[:, 0] if subject.declared.get("needs_first") else missing.all(axis=1)
    abstained = missing.any(axis=1) if subject.declared.get("needs_all") else abstained
    if not np.array_equal(np.isnan(scores), abstained):
        where = np.flatnonzero(abstained).tolist()
        raise Failed(f"the scores are {scores.tolist()}, and should be NaN for the completions {where} and no others")
    if not np.array_equal(np.asarray(manager(table[::-1].copy(), names)), scores[::-1], equal_nan=True):
        raise Failed("in another order the completions get other scores")
