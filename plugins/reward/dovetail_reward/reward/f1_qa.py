"""Reward `f1_qa`: the word overlap between an answer to an open question and the right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, last_answer
from dovetail_reward.reward._questions import Truths, normal, spellings


@declares(
    range=(0, 1),
    examples=[
        (
            {"completions": "<answer>the tower of Eiffel</answer>", "answer": "Eiffel Tower"},
            {"completions": "<answer>Notre-Dame</answer>", "answer": "Eiffel Tower"},
        )
    ],
)
def f1_qa(
    completions: Sequence[str],
    answer: Sequence[Truths],
    *,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """From 0.0 to 1.0: the F1 of the words between the answer's tags and the closest spelling of the right answer.

        F1 = max_k 2·|G ∩ T_k| / (|G| + |T_k|)

    with G and T_k the words of the guess and of a right answer in normal form (lower case, no punctuation, no
    articles), as multisets; 1 if both are empty. It is the harmonic mean of precision |G ∩ T| / |G|
    and recall |G ∩ T| / |T|: Rajpurkar et al. 2016, *SQuAD*, section 6.1. The last closed pair of tags counts;
    without one the score is 0.

    Args:
        completions: texts without special tokens.
        answer: the dataset column with the right answers; a cell is a text, a number, or a list of spellings; where
            it is None the reward abstains.
        answer_start, answer_end: the tags, taken literally.

    >>> f1_qa(["<answer>the tower of Paris</answer>", "<answer>Eiffel tower</answer>", ""], ["Eiffel Tower"] * 3)
    [0.4, 1.0, 0.0]
    """
    tags = {"answer_start": answer_start, "answer_end": answer_end}
    return [
        None if truths is None else _best(last_answer(text, **tags), spellings(truths))
        for text, truths in zip(completions, answer, strict=True)
    ]


def _best(guess: str | None, truths: list[str]) -> float:
    if guess is None:
        return 0.0
    words = Counter(normal(guess).split())
    return max((_f1(words, Counter(normal(truth).split())) for truth in truths), default=0.0)


def _f1(guess: Counter[str], truth: Counter[str]) -> float:
    sizes = guess.total() + truth.total()
    return 2 * (guess & truth).total() / sizes if sizes else 1.0
