"""What is claimed of rewards and of what finds the answer in a completion: functions of texts."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.hostile import HOSTILE, TRUTHS
from dovetail_kit.conformance.subject import Subject

TEXTS = ("answer", "reward")
SECONDS = 20
"""Of processor time, for all hostile texts together; what is careful takes far less than one."""


def is_pure(component: Component) -> bool:
    """Tell whether it gives the same answer to the same text, and so asks no server."""
    return component.declares.get("deterministic", True)


def _records(subject: Subject) -> list[dict[str, Any]]:
    """Return completions with a cell for each column that is read: the examples, or ordinary texts."""
    pairs = [record for pair in subject.declared.get("examples", ()) for record in pair]
    texts = ["42", "", "the answer is 7", "<answer>42</answer>", r"\boxed{42}", "#### 42"]
    like = pairs[0] if pairs else {}
    unknown = [read for read in subject.component.reads if read not in (*like, "completions")]
    if unknown:
        raise Inapplicable(
            f"it reads {', '.join(unknown)}, of which nobody knows what they hold: declare"
            " examples=[({'completions': ..., ...}, {...})]"
        )
    return pairs + [dict(like) | {"completions": text} for text in texts[: 2 if _starts_processes(subject) else None]]


def _starts_processes(subject: Subject) -> bool:
    return "processes" in subject.component.params


def _call(subject: Subject, records: list[dict[str, Any]], **params: Any) -> list[Any]:
    columns = [[record[read] for record in records] for read in subject.component.reads]
    returned = subject.bind(**params)(*columns)
    return returned[0] if isinstance(returned, tuple) else returned


@check(*TEXTS, when=is_pure, mend="Return a list with one float, or None to abstain, for each completion.")
def one_for_each(subject: Subject) -> None:
    """There is one result for each completion, in a list: a finite float or None; of none for no completions.

    A reward that is NaN or an int by accident is read as something else: None is how to abstain.
    """
    records = _records(subject)
    found = _call(subject, records)
    if not isinstance(found, list | np.ndarray) or len(found) != len(records):
        raise Failed(f"{len(records)} completions get {found!r}")
    for record, value in zip(records, found, strict=True):
        _fits(subject, value, record["completions"])
    if len(_call(subject, [])):
        raise Failed("no completions get results")


def _fits(subject: Subject, value: Any, text: str) -> None:
    if value is None:
        return
    if subject.component.kind == "answer":
        if not isinstance(value, str | int | float):
            raise Failed(f"{_short(text)} gets {value!r}")
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not math.isfinite(value):
        raise Failed(f"{_short(text)} gets {value!r}, no finite number or None")


def _short(text: str) -> str:
    return repr(text) if len(text) < 60 else f"{text[:50]!r}... ({len(text)} characters)"


@check(
    *TEXTS,
    when=is_pure,
    mend="Keep nothing between calls, draw no random number; or declare deterministic=False.",
)
def deterministic(subject: Subject) -> None:
    """The same completions get the same results, twice, and from a fresh instance.

    Greedy evaluations could not be compared, and a resumed run would not repeat itself.
    """
    records = _records(subject)
    first = _call(subject, records)
    for _ in range(2):
        _compare(records, first, _call(subject, records))


@check(*TEXTS, when=is_pure, mend="Score each completion by itself, and use zip(completions, answer).")
def by_itself(subject: Subject) -> None:
    """A completion gets the same result alone, among others, and in another order.

    Batches are split, shuffled and shared among workers; a completion scored beside others must not depend on them.
    """
    records = _records(subject)
    first = _call(subject, records)
    _compare(records[::-1], first[::-1], _call(subject, records[::-1]))
    for number in range(0, len(records), 3):
        _compare([records[number]], [first[number]], _call(subject, [records[number]]))


def _compare(records: list[dict[str, Any]], expected: list[Any], found: list[Any]) -> None:
    for record, ours, theirs in zip(records, found, expected, strict=True):
        if ours != theirs:
            raise Failed(f"{_short(record['completions'])} gets {ours!r}, and {theirs!r} before")


@check(
    *TEXTS,
    when=is_pure,
    mend="Look for regular expressions with nested or neighbouring repetition, for int() of what may be huge and for"
    " recursion; catch what parsing raises, and score it as a wrong answer.",
)
def hostile_texts(subject: Subject) -> None:
    """Empty, huge and odd texts get a finite result, in bounded time: a policy in training writes all of these.

    One completion that a regular expression chews on for minutes stops the run, and one that raises ends it.
    """
    labels = list(HOSTILE)[:: 8 if _starts_processes(subject) else 1]
    like = _records(subject)[0]
    params = {"time_limit": 0.1} if "time_limit" in subject.component.params else {}
    records: list[dict[str, Any]] = [dict(like) | {"completions": HOSTILE[label]} for label in labels]
    with _limited(SECONDS, "the hostile texts"):
        found = _call(subject, records, **params)
    for label, record, value in zip(labels, records, found, strict=True):
        try:
            _fits(subject, value, record["completions"])
        except Failed as error:
            raise Failed(f"'{label}': {error}") from None


@check("reward", when=is_pure, mend="Convert with care: try float(...), and abstain (None) where the answer is None.")
def odd_answers(subject: Subject) -> None:
    """Numbers, texts, nothing, and None in the dataset's column `answer` get a finite score or an abstention.

    A column read from JSON holds what its author wrote: 42, "42", "", null.
    """
    records = _records(subject)
    if not isinstance(records[0].get("answer"), str) or _starts_processes(subject):
        raise Inapplicable("it reads no answers that are text")
    for truth in TRUTHS:
        odd: list[dict[str, Any]] = [record | {"answer": truth} for record in records]
        for record, value in zip(odd, _call(subject, odd), strict=True):
            try:
                _fits(subject, value, record["completions"])
            except Failed as error:
                raise Failed(f"with answer = {truth!r}: {error}") from None


@check("reward", claim="examples", mend="Correct the reward, or the example.")
def examples(subject: Subject) -> None:
    """Of every pair of examples the good completion scores more than the bad one."""
    for good, bad in subject.declared["examples"]:
        best, worst = _call(subject, [good, bad])
        if best is None or worst is None or not best > worst:
            raise Failed(f"{_short(good['completions'])} gets {best!r}, {_short(bad['completions'])} {worst!r}")


@check("reward", claim="range", when=is_pure, mend="Declare the least and the greatest score there can be.")
def within_range(subject: Subject) -> None:
    """No score lies outside the declared range."""
    low, high = subject.declared["range"]
    records = _records(subject)
    for record, value in zip(records, _call(subject, records), strict=True):
        if value is not None and not low <= value <= high:
            raise Failed(f"{_short(record['completions'])} gets {value!r}, outside {low} to {high}")


@check("reward_manager", mend="Use nansum and the like on the table, and return NaN where a row is all NaN.")
def combines(subject: Subject) -> None:
    """There is one score per completion, NaN where every reward abstained, the table stays as it is, in any order.

    NaN in the table is an abstention. Read as zero, a completion that nobody judged is punished.
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
    if not np.isnan(scores[2]) or np.isnan(np.delete(scores, 2)).any():
        raise Failed(f"the scores are {scores.tolist()}, where every reward abstained on number 2 and on no other")
    if not np.array_equal(np.asarray(manager(table[::-1].copy(), names)), scores[::-1], equal_nan=True):
        raise Failed("completions in another order get other scores")


@contextlib.contextmanager
def _limited(seconds: float, what: str) -> Iterator[None]:
    """Stop after so much processor time, where that can be done; a busy machine changes nothing."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGVTALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise Failed(f"{what} take more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
