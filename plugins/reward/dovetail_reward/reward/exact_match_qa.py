"""Reward `exact_match_qa`: an answer to an open question, right in one of its spellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, last_answer
from dovetail_reward.reward._questions import Truths, normal, spellings

_VERL_TAGS = 10
"""If a completion has more tags of a kind than this, verl divides the score by four."""


@declares(
    range=(0, 1),
    examples=[
        (
            {"completions": "<answer>the Eiffel tower</answer>", "answer": ["Eiffel Tower"]},
            {"completions": "<answer>Notre-Dame</answer>", "answer": ["Eiffel Tower"]},
        )
    ],
)
def exact_match_qa(
    completions: Sequence[str],
    answer: Sequence[Truths],
    *,
    match: Literal["whole", "contained"] = "whole",
    format_score: float = 0.0,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
    verl_compatible: bool = False,
) -> list[float | None]:
    """1.0 for a right answer between the answer's tags, `format_score` for a wrong one, 0.0 for none.

        EM = max_k [ normal(guess) = normal(truth_k) ]

    with the normal form of SQuAD: lower case, no punctuation, no articles. The last closed pair of tags counts. The
    outcome reward of Jin et al. 2025, *Search-R1*, equation 4, whose scorer verl has.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers; a cell is a text, a number, or a list of spellings, any of
            which is right; where it is None the reward abstains.
        match: with `contained`, the right answer need only occur in the guess, as whole words.
        format_score: the score of a wrong answer between its tags.
        answer_start, answer_end: the tags, taken literally.
        verl_compatible: return verl's scores exactly, including the departures below.

    Departures:
        verl also finds a contained answer inside words (`ater` in `theater`), and treats all answers whose normal form
        is empty (`a`) as equal; here these are compared unnormalised. In `<answer>I write <answer>Paris</answer>` verl
        reads everything from the first tag on, in `<answer>Paris</answer></answer>` everything up to the first closing
        one. It divides the score of a right answer by four if a tag occurs more than ten times.

    >>> exact_match_qa(["<answer>The Eiffel tower.</answer>", "Paris"], [["Eiffel Tower", "La tour Eiffel"]] * 2)
    [1.0, 0.0]
    >>> exact_match_qa(["<answer>It is Paris</answer>"], ["paris"], match="contained")
    [1.0]
    """
    tags = {"answer_start": answer_start, "answer_end": answer_end}
    points = _verl_points if verl_compatible else _points
    return [
        None if truths is None else points(text, spellings(truths), match, format_score, **tags)
        for text, truths in zip(completions, answer, strict=True)
    ]


def _points(text: str, truths: list[str], match: str, format_score: float, **tags: str) -> float:
    guess = last_answer(text, **tags)
    if guess is None:
        return 0.0
    same = _contains if match == "contained" else _equals
    return 1.0 if any(same(guess, truth) for truth in truths) else format_score


def _equals(guess: str, truth: str) -> bool:
    expected = normal(truth)
    return normal(guess) == expected if expected else guess.strip() == truth.strip()


def _contains(guess: str, truth: str) -> bool:
    expected = normal(truth)
    return f" {expected} " in f" {normal(guess)} " if expected else guess.strip() == truth.strip()


def _verl_points(text: str, truths: list[str], match: str, format_score: float, **tags: str) -> float:
    guess = _verl_answer(text, **tags)
    if guess is None:
        return 0.0
    guess, expected = normal(guess), [normal(truth) for truth in truths]
    if match == "contained":
        return 1.0 if any(truth in guess for truth in expected) else format_score
    if guess not in expected:
        return format_score
    return 0.25 if max(text.count(tag) for tag in tags.values()) > _VERL_TAGS else 1.0


def _verl_answer(text: str, *, answer_start: str, answer_end: str) -> str | None:
    answer, at = None, 0
    while (start := text.find(answer_start, at)) >= 0 and (end := text.find(answer_end, start)) >= 0:
        answer, at = text[start + len(answer_start) : end], end + len(answer_end)
    return answer
