"""Completions for reward tests."""

from __future__ import annotations


def formatted(answer: str, reasoning: str = "6·7") -> str:
    """Return a completion in the right format."""
    return f"<reasoning>{reasoning}</reasoning><answer>{answer}</answer>"
