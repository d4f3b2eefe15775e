"""Checks of the input that every engine makes before it samples, and the width to which it pads prompts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from dovetail.errors import ConfigError


def check_prompts(
    tokens: Int[np.ndarray, "prompt position"],
    mask: Bool[np.ndarray, "prompt position"],
    keys: Key[Array, "prompt sample"],
) -> None:
    """Refuse shapes that do not match, and rows that end in padding: a completion starts right after its prompt."""
    if tokens.ndim != 2 or mask.shape != tokens.shape or keys.ndim != 2 or len(keys) != len(tokens):
        raise ConfigError(
            f"prompt_tokens {tokens.shape} and prompt_mask {mask.shape} must both be [prompt, position], and keys"
            f" {keys.shape} must be [prompt, sample] with the same prompts"
        )
    mask = np.asarray(mask, bool)
    wrong = np.flatnonzero(mask.any(axis=1) & ~mask[:, -1])
    if len(wrong):
        raise ConfigError(f"prompts {wrong.tolist()} end in padding; pad prompts on the left")


SHORTEST_PROMPT = 64
"""Positions of the shortest bucket of prompt lengths; each bucket is twice as long as the one before."""


def prompt_positions(longest: int, width: int, least: int = SHORTEST_PROMPT) -> int:
    """Return to how many of `width` positions prompts are padded, so that few programs are compiled for their lengths.

    >>> [prompt_positions(longest, width=200) for longest in (1, 64, 65, 150)]
    [64, 64, 128, 200]
    """
    length = least
    while length < longest:
        length *= 2
    return min(length, width)


def unknown_ids(
    tokens: Int[np.ndarray, "prompt position"], mask: Bool[np.ndarray, "prompt position"], vocab_size: int
) -> Bool[np.ndarray, "prompt"]:
    """Return which prompts have an id outside the vocabulary, which XLA would silently read as another id.

    >>> unknown_ids(np.array([[1, 9], [9, 1]]), np.array([[True, True], [False, True]]), vocab_size=9)
    array([ True, False])
    """
    return np.any(mask & ((tokens < 0) | (tokens >= vocab_size)), axis=1)
