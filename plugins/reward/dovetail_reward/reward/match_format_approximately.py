"""Reward `match_format_approximately`: how many of the four tags occur exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, REASONING_END, REASONING_START


@declares(
    range=(-2, 2),
    examples=[({"completions": "<reasoning>6·7</reasoning><answer>42</answer>"}, {"completions": "42"})],
)
def match_format_approximately(
    completions: Sequence[str],
    *,
    reasoning_start: str = REASONING_START,
    reasoning_end: str = REASONING_END,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """+0.5 for each of the four tags that occurs exactly once, -0.5 for each that does not: from -2.0 to 2.0.

    In any order; it leads a model towards `match_format_exactly`, and away from writing a tag twice. From the
    GSM8K demonstration of tunix, whose scores it reproduces.

    Args:
        completions: texts without special tokens.
        reasoning_start, reasoning_end, answer_start, answer_end: the tags, taken literally.

    >>> match_format_approximately(["<reasoning>6·7</reasoning><answer>42</answer>", "<answer>42</answer>", ""])
    [2.0, 0.0, -2.0]
    """
    tags = (reasoning_start, reasoning_end, answer_start, answer_end)
    return [sum(0.5 if completion.count(tag) == 1 else -0.5 for tag in tags) for completion in completions]
