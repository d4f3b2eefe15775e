"""Reward `think_format`: reasoning in its tags first, and text after it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.registry import declares


@declares(
    range=(0, 1),
    examples=[({"completions": "<think>6·7</think>42"}, {"completions": "42"})],
)
def think_format(
    completions: Sequence[str], *, start: str = "<think>", end: str = "</think>", opened: bool = False
) -> list[float | None]:
    """1.0 for a completion that begins with reasoning between its tags, and opens them once; else 0.0.

    The reward `think_format_reward` of TRL, whose scores it reproduces. What comes after the reasoning is free, so that
    it is used beside a reward that reads the answer.

    Args:
        completions: texts without special tokens.
        start: the tag with which a completion begins, taken literally.
        end: the tag after the reasoning.
        opened: whether the prompt ends with `start`, as the chat templates of some reasoning models do; completions
            then begin with the reasoning itself, and do not open it again.

    Departures:
        `opened` is not in TRL, whose reward is zero for all completions of such a template.

    >>> think_format(["<think>6·7</think>42", " <think>6·7</think>42", "<think>6·7", "<think><think>6·7</think>42"])
    [1.0, 0.0, 0.0, 0.0]
    >>> think_format(["6·7</think>42", "<think>6·7</think>42"], opened=True)
    [1.0, 0.0]
    """
    return [float(_is_thought(text if not opened else start + text, start, end)) for text in completions]


def _is_thought(text: str, start: str, end: str) -> bool:
    return text.startswith(start) and text.count(start) == 1 and text.find(end, len(start)) >= 0
