"""Reward `match_format_exactly`: reasoning in its tags, then the answer in its own."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares
from dovetail_reward._format import ANSWER_END, ANSWER_START, REASONING_END, REASONING_START, answer_in_format


@declares(
    range=(0, 3),
    examples=[({"completions": "<reasoning>6·7</reasoning><answer>42</answer>"}, {"completions": "42"})],
)
def match_format_exactly(
    completions: Sequence[str],
    *,
    reasoning_start: str = REASONING_START,
    reasoning_end: str = REASONING_END,
    answer_start: str = ANSWER_START,
    answer_end: str = ANSWER_END,
) -> list[float | None]:
    """3.0 for a completion that holds reasoning and then an answer, each between its tags; else 0.0.

    The opening tag of the reasoning is the first thing on its line, the closing tag of the answer the last on its
    own; neither part is empty; anything may lie between the two, and on lines before and after. From the GSM8K
    demonstration of tunix, whose scores it reproduces.

    Args:
        completions: texts without special tokens.
        reasoning_start, reasoning_end, answer_start, answer_end: the tags, taken literally.

    >>> match_format_exactly(["<reasoning>6·7</reasoning><answer>42</answer>", "<answer>42</answer>"])
    [3.0, 0.0]
    """
    tags = {
        "reasoning_start": reasoning_start,
        "reasoning_end": reasoning_end,
        "answer_start": answer_start,
        "answer_end": answer_end,
    }
    return [0.0 if answer_in_format(completion, **tags) is None else 3.0 for completion in completions]
