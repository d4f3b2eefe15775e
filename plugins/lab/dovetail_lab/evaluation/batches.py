"""Batches of one size, the last one too."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from dovetail.host.completer import Completed, Completer
from dovetail.protocols import Example, Sampling


def in_full_batch(
    complete: Completer, examples: list[Example], keys: Key[Array, "prompt sample"], sampling: Sampling, size: int
) -> Completed:
    """Complete examples as a batch of `size`, so that a smaller last batch does not compile another program."""
    filling = size - len(examples)
    if not filling:
        return complete(examples, keys, sampling)
    filled = jnp.concatenate([keys, jnp.repeat(keys[:1], filling, axis=0)])
    return complete(examples + examples[:1] * filling, filled, sampling).of(np.arange(len(examples)))
