"""Batches of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from dovetail.protocols import Completions, Example

Draw = Callable[[list[Example], Any], tuple[Completions, np.ndarray, np.ndarray]]
"""Completes examples, one completion for each of their keys; returns them with the prompts' arrays."""


def in_full_batch(
    draw: Draw, examples: list[Example], keys: Key[Array, "prompt sample"], size: int
) -> tuple[Completions, np.ndarray, np.ndarray]:
    """Complete examples as a batch of `size`, so that a last, smaller batch compiles nothing; what fills it is cut."""
    filling = size - len(examples)
    if not filling:
        return draw(examples, keys)
    drawn, tokens, mask = draw(
        examples + examples[:1] * filling, jnp.concatenate([keys, jnp.repeat(keys[:1], filling, axis=0)])
    )
    rows = len(examples) * keys.shape[1]
    return drawn.rows(slice(rows)), tokens[: len(examples)], mask[: len(examples)]
