"""The arguments other than dataset columns that the engine passes to rewards, for three characters per token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

WIDTH: Final = 3
"""Characters of a token; the end-of-sequence token, which has none, comes last."""


def count_tokens(text: str) -> int:
    """Return how many tokens a text has.

    >>> count_tokens("12 + 34"), count_tokens("")
    (4, 1)
    """
    return -(-len(text) // WIDTH) + 1


def _ends(text: str) -> list[int]:
    return [min(WIDTH * (number + 1), len(text)) for number in range(count_tokens(text))]


def _ids(text: str) -> list[int]:
    return [1 + sum(map(ord, text[end - WIDTH : end])) % 997 for end in _ends(text)[:-1]] + [0]


GIVEN: Final[Mapping[str, Callable[[int, Mapping[str, Any]], Any]]] = {
    "prompts": lambda number, record: "What is 6 * 7?",
    "examples": lambda number, record: record,
    "group_ids": lambda number, record: number // 2,
    "tokens": lambda number, record: _ids(record["completions"]),
    "logps": lambda number, record: [-0.5 - token % 7 for token in _ids(record["completions"])],
    "ends": lambda number, record: _ends(record["completions"]),
}
"""For each name that rewards may read, a function from the index and record of a completion to its value."""
