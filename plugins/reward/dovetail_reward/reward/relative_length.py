"""Reward `relative_length`: prefers short correct completions among those of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from dovetail.registry import declares
from dovetail_reward._numbers import Truth, spelled
from dovetail_reward.answer._vote import vote
from dovetail_reward.answer.boxed import boxed
from dovetail_reward.answer.last_number import last_number
from dovetail_reward.answer.tagged import tagged

_FINDERS = {"boxed": boxed, "last_number": last_number, "tagged": tagged}


@declares(
    range=(-0.5, 0.5),
    examples=[
        (
            {"completions": "<answer>42</answer>", "answer": "42"},
            {"completions": "<reasoning>well, let me think</reasoning><answer>42</answer>", "answer": "42"},
        ),
        (
            {"completions": "<answer>42</answer>", "answer": "42"},
            {"completions": "<answer>seven</answer>", "answer": "42"},
        ),
    ],
)
def relative_length(
    completions: Sequence[str],
    tokens: Sequence[Sequence[int]],
    group_ids: Sequence[int],
    answer: Sequence[Truth],
    *,
    finds: Literal["boxed", "last_number", "tagged"] = "tagged",
) -> list[float | None]:
    """The position of a completion's length between the shortest and the longest of its group.

        r_i = λ_i            if i is right
              min(0, λ_i)    otherwise
        λ_i = 1/2 - (|y_i| - l_min) / (l_max - l_min),   l_min, l_max of the group of i

    Kimi Team 2025, *Kimi k1.5: Scaling Reinforcement Learning with LLMs*, section 2.3.3. The shortest completion of a
    prompt gets half a point if it is right, and the longest minus half a point in any case; a short wrong answer gets
    nothing. In the paper this is added to the reward for a right answer, and only after an initial phase without it,
    since it slows down learning at the start.

    Args:
        completions: texts without special tokens.
        tokens: ids of the policy's tokens; their number is |y|.
        group_ids: which prompt a completion answers. The reward depends on the others in its group.
        answer: the dataset column with the right answers, text or numbers; where it is None the reward abstains.
        finds: a component of kind `answer`, which extracts the answer of a completion. It is right if it is the same
            text as the right answer, or the same number.

    Returns:
        A score between -1/2 and 1/2; 0 in a group whose completions all have the same length, in particular in a group
        of one, as in greedy evaluation.

    Departures:
        Lengths are in tokens; `len_reward` of Open R1 counts characters.

    >>> texts = ["<answer>2</answer>", "<answer>2</answer> ...", "<answer>3</answer>"]
    >>> relative_length(texts, [[1] * 4, [1] * 8, [1] * 5], [0, 0, 0], ["2", "2", "2"])
    [0.5, -0.5, 0.0]
    """
    lengths, groups = np.array([len(ids) for ids in tokens], np.float64), np.asarray(group_ids)
    found: list[float | None] = []
    for row, (guess, truth) in enumerate(zip(_FINDERS[finds](completions), answer, strict=True)):
        of_group = lengths[groups == groups[row]]
        longer, span = lengths[row] - of_group.min(), of_group.max() - of_group.min()
        share = float(0.5 - longer / span) if span else 0.0
        is_right = guess is not None and truth is not None and guess == vote(spelled(truth))
        found.append(None if truth is None else share if is_right else min(0.0, share))
    return found
