"""Random keys from counters, `fold_in(seed, stream, step, prompt, sample)`, so that they do not depend on any split."""

from __future__ import annotations

import functools
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int, Key

INIT: Final = 0
CRITIC_INIT: Final = 1
SAMPLING: Final = 2
STEP: Final = 3
EVALUATION: Final = 4
GENERATION: Final = 5
ROLE_INIT: Final = 7
"""Followed by the role, so that two roles with models of their own are not one model twice."""
PROMPTS: Final = 8
REPLAY: Final = 9
DROPOUT: Final = 0xFFFFFFFF
ROWS: Final = 0xFFFFFFFE
UPDATE: Final = 0xFFFFFFFD
"""Folded into the key of a step like the indices of its epochs."""


def stream(seed: int, *counters: int) -> Key[Array, ""]:
    """Return the key of a stream and its counters.

    >>> bool(stream(0, SAMPLING, 3) == stream(0, SAMPLING, 3))
    True
    """
    key = jax.random.key(seed)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def per_sample(key: Key[Array, ""], prompts: int, samples: int, first: int = 0) -> Key[Array, "prompt sample"]:
    """Return one key per prompt and sample, for prompts counted from `first`."""
    return of_samples(key, np.arange(first, first + prompts, dtype=np.int32), samples)


# Compiled: as a dozen operations of their own it would take milliseconds of each step.
@functools.partial(jax.jit, static_argnames="samples")
def of_samples(key: Key[Array, ""], prompts: Int[ArrayLike, "prompt"], samples: int) -> Key[Array, "prompt sample"]:
    """Return one key per prompt and sample, for prompts with these numbers.

    >>> key = stream(0, GENERATION)
    >>> bool((of_samples(key, jnp.array([2]), 3) == per_sample(key, 3, 3)[2:]).all())
    True
    """
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(fold, in_axes=(0, None))(fold(key, jnp.asarray(prompts)), jnp.arange(samples))
