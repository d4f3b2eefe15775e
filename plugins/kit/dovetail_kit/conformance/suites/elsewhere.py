"""Claims about tasks and rewards beyond a single call: in another process, and in what there is of them."""

from __future__ import annotations

import re
from typing import Any, Final

from dovetail.errors import DovetailError
from dovetail_kit.conformance.again import ERROR, told
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.clock import TooLong, limited
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.data import first_of, task_of
from dovetail_kit.conformance.suites.devices import ASKED_AGAIN, answers_of, name_of
from dovetail_kit.conformance.suites.texts import is_pure

LONG: Final = 10_000
SIZE: Final = re.compile(r"(^|_)(size|count|limit|examples|records|rows)$")
PATIENCE: Final = 10
"""Seconds of processor time for many examples."""
DISTINCT = 0.95
"""The share of different examples among the first ones; small made-up tasks draw some twice."""


@check(
    *ASKED_AGAIN,
    when=is_pure,
    slow=True,
    fix="Sort what comes from a set or a folder, and use hashlib where a text is to be hashed: hash() is another every"
    " time.",
)
def same_in_another_process(subject: Subject) -> None:
    """In another process it gives the same results, in the same order.

    Otherwise a resumed run would continue with other examples, and use some twice and others never.
    """
    if subject.component.kind == "task":
        task_of(subject)  # data that cannot be read here is not asked for elsewhere
    if "url" in subject.component.params or "processes" in subject.component.params:
        raise Inapplicable("it asks another program")
    expected, found = (
        told(subject),
        answers_of("again", subject).get(name_of(subject), {ERROR: "it is not at the top level"}),
    )
    if isinstance(found, dict):
        raise Inapplicable(f"it cannot be asked in another process: {found[ERROR]}")
    if len(found) != len(expected):
        raise Failed(f"in another process it gives {len(found)} results, and here {len(expected)}")
    for ours, theirs in zip(expected, found, strict=True):
        if ours != theirs:
            raise Failed(f"in another process it gives {theirs[:160]}, and here {ours[:160]}")


@check("task", unless="repeats", fix="Leave out what is there already, or declare repeats=True.")
def distinct(subject: Subject) -> None:
    """Most examples of a split are different.

    Duplicates count twice in every mean, and one of two equal examples may be trained on while the other is held out.
    """
    task = task_of(subject)
    for split in ("train", "eval"):
        examples = [repr(sorted(example.items(), key=str)) for example in first_of(task.examples(split))]
        if len(set(examples)) < DISTINCT * len(examples):
            raise Failed(f"of the first {len(examples)} {split} examples {len(set(examples))} are different")


def comes_twice(subject: Subject) -> bool:
    """Tell whether an example of a task comes twice in ten thousand, also with larger splits than its own; true if that
    takes too long to be known.
    """
    larger = {name: LONG for name, size in subject.params.items() if SIZE.search(name) and type(size) is int}
    try:
        with limited(PATIENCE):
            return any(_has_twice(subject.bind(**sizes)) for sizes in ({}, larger))
    except (DovetailError, Inapplicable, ValueError):
        return False  # it has no more than it has by default
    except TooLong:
        return True


def _has_twice(task: Any) -> bool:
    """Tell whether an example of a split comes twice."""
    for split in ("train", "eval"):
        examples = [repr(sorted(example.items(), key=str)) for example in first_of(task.examples(split), LONG)]
        if len({*examples}) < len(examples):
            return True
    return False
