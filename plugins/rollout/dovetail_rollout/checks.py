"""What every engine refuses before it samples."""

from __future__ import annotations

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from dovetail.errors import ConfigError
from dovetail.protocols import Sampling


def check_sampling(sampling: Sampling) -> None:
    """Refuse settings that mean nothing, with the range allowed."""
    ranges = [
        ("temperature", 0 <= sampling.temperature < float("inf"), "finite and at least 0; 0 is greedy"),
        ("top_k", sampling.top_k is None or sampling.top_k >= 1, "at least 1; None keeps every token"),
        ("top_p", sampling.top_p is None or 0 < sampling.top_p <= 1, "in (0, 1]; None keeps every token"),
        ("max_tokens", sampling.max_tokens >= 1, "at least 1"),
    ]
    for name, fits, allowed in ranges:
        if not fits:
            raise ConfigError(f"sampling.{name} = {getattr(sampling, name)}; it must be {allowed}")


def check_prompts(
    tokens: Int[np.ndarray, "prompt position"],
    mask: Bool[np.ndarray, "prompt position"],
    keys: Key[Array, "prompt sample"],
) -> None:
    """Refuse shapes that do not match, and rows that end in padding: the completion starts right after the prompt."""
    if tokens.ndim != 2 or mask.shape != tokens.shape or keys.ndim != 2 or len(keys) != len(tokens):
        raise ConfigError(
            f"prompt_tokens {tokens.shape} and prompt_mask {mask.shape} must both be [prompt, position], and keys"
            f" {keys.shape} [prompt, sample] with as many prompts"
        )
    mask = np.asarray(mask, bool)
    wrong = np.flatnonzero(mask.any(axis=1) & ~mask[:, -1])
    if len(wrong):
        raise ConfigError(f"prompts {wrong.tolist()} end in padding; pad prompts on the left")
