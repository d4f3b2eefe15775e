"""Claims about functions of texts, managers and answers: what they leave alone, and what they must not lose."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dovetail.registry import Component
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.given import GIVEN
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.texts import (
    TEXTS,
    call_on,
    is_pure,
    records_of,
    short,
)

LINES = "2 + 3 = 5\n" * 4 + "so the answer is 5.\n\n3 + 3 = 6\n"
COARSE = 16
"""Characters of a long token."""


def _in_space(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose completion begins and ends with white space, which some functions strip in place."""
    if "ends" in record:
        return record
    spaced = {name: f" {record[name]}\n" for name in ("completions", "answer") if isinstance(record.get(name), str)}
    return record | spaced


@check(*TEXTS, when=is_pure, fix="Copy a list before you change it.")
def leaves_its_arguments(subject: Subject) -> None:
    """It changes none of its arguments: the next reward gets the same lists.

    It would score other texts than those that are recorded and trained on.
    """
    records = [_in_space(record) for record in records_of(subject)]
    columns = [
        [record[read] if read in record else GIVEN[read](number, record) for number, record in enumerate(records)]
        for read in subject.component.reads
    ]
    before = copy.deepcopy(columns)
    returned, _ = split_metrics(subject.bind()(*columns))
    list(returned)
    for read, ours, theirs in zip(subject.component.reads, columns, before, strict=True):
        if ours != theirs:
            raise Failed(f"after the call its argument '{read}' is another")


@check("answer", fix="Return None where nothing is found, not an empty text.")
def no_answer_is_none(subject: Subject) -> None:
    """A completion without any text has no answer: None.

    A vote counts the empty text as an answer like any other, and it may well win.
    """
    for text in ("", " \n"):
        (found,) = call_on(subject, [{"completions": text}])
        if found is not None:
            raise Failed(f"{text!r} gets the answer {found!r}")


def _reads_texts(component: Component) -> bool:
    return is_pure(component) and "completions" in component.reads


@check(
    "process_reward", when=_reads_texts, fix="`ends` says at which character each token ends: find the token by that."
)
def finds_its_tokens(subject: Subject) -> None:
    """Where tokens are long, credit is not lost: it belongs to tokens, not to as many characters.

    A text of hundreds of characters has tens of tokens; an index into the text is beyond its tokens, or on another one.
    """
    like = records_of(subject)[0]
    pairs = [record["completions"] for pair in subject.declared.get("examples", ()) for record in pair]
    for text in (*pairs, LINES):
        # cut off in its first token, a text of lines still has them; what an example is about may need a second one
        few = [len(text)] if text == LINES else [len(text) // 2, len(text)]
        fine, *coarse = (
            _credit(subject, dict(like) | {"completions": text}, ends)
            for ends in (_ends_of(text, 1), _ends_of(text, COARSE), few)
        )
        for credit, tokens in zip(coarse, (f"a token has {COARSE} characters", f"there are {len(few)}"), strict=True):
            if fine and not credit:
                raise Failed(f"{short(text)} gets credit if a token is one character, and none if {tokens}")


def _ends_of(text: str, width: int) -> list[int]:
    return [min(end, len(text)) for end in range(width, len(text) + width, width)] + [len(text)]


def _credit(subject: Subject, record: dict[str, Any], ends: list[int]) -> float:
    of_tokens = {"ends": ends, "tokens": list(range(len(ends))), "logps": [-1.0] * len(ends)}
    (value,) = call_on(subject, [record | of_tokens])
    return 0.0 if value is None else float(np.abs(value).sum())


@check("reward_manager", unless="not_monotone", fix="Check the signs; declare not_monotone=True if that is meant.")
def more_is_not_less(subject: Subject) -> None:
    """A completion that every reward scores higher does not get a lower score, all else equal; of all completions some
    get a higher one.

    A policy would be taught to do worse by a reward that it is to collect.
    """
    manager: Any = subject.bind()
    across_zero = [[-0.5, 5.0], [5.0, -0.5], [-0.5, 0.25]]  # one at a time: the product of two that fall is higher
    table = np.array([[1.0, 2.0], [0.5, 0.5], [0.0, -1.0], [3.0, 0.0], *across_zero])
    names = ("first", "second")
    before = np.asarray(manager(table.copy(), names))
    for row in range(len(table)):
        better = table.copy()
        better[row] += 1.0
        after = np.asarray(manager(better, names))
        if after[row] < before[row] - 1e-6:
            raise Failed(
                f"rewards of {better[row]} instead of {table[row]} lower the score by {before[row] - after[row]:.6g}"
            )
    levels = [np.asarray(manager(table + level, names)) for level in (-5.0, 0.0, 5.0)]
    if np.allclose(levels, before):
        raise Failed(f"the scores are {before.tolist()}, and the same where every reward is higher or lower by 5")
