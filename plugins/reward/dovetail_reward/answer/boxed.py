r"""Answer `boxed`: the content of `\boxed{}`."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_reward._latex import boxed_answer
from dovetail_reward.answer._vote import vote


def boxed(completions: Sequence[str]) -> list[str | None]:
    r"""The content of the last box of a completion, `\boxed{a}`, `\fbox{a}` or `\boxed a`; None without one.

    Different spellings of one formula are different answers, except for plain numbers.

    Args:
        completions: texts without special tokens.

    >>> boxed([r"so $\boxed{1{,}000}$", r"\boxed{42.0}", "42"])
    ['1000', '42', None]
    """
    return [vote(boxed_answer(text)) for text in completions]
