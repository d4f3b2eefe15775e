"""Answer `tagged`: the text between the answer's tags."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_reward._format import ANSWER_END, ANSWER_START, last_answer
from dovetail_reward.answer._vote import vote


def tagged(
    completions: Sequence[str], *, answer_start: str = ANSWER_START, answer_end: str = ANSWER_END
) -> list[str | None]:
    """The text in the last closed pair of tags, as the reward `exact_match` reads it; None without one.

    Args:
        completions: texts without special tokens.
        answer_start, answer_end: the tags, taken literally.

    >>> tagged(["<answer>1,234</answer>", "<answer> Paris</answer>", "42"])
    ['1234', 'Paris', None]
    """
    return [vote(last_answer(text, answer_start=answer_start, answer_end=answer_end)) for text in completions]
