"""Field `sum_pi_squared`: the sum of squared probabilities over the vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def sum_pi_squared(logits: Float[Array, "*batch vocab"]) -> Float[Array, "*batch"]:
    """The probability that two tokens sampled independently from the policy at a position are equal.

        ∑_v π_v² = exp(logsumexp(2·z) - 2·logsumexp(z)),  z the logits

    Args:
        logits: z, in float32, divided by the sampling temperature.

    Returns:
        A value between 1/|vocab| (a uniform policy) and 1 (a deterministic one).

    >>> sum_pi_squared(jnp.zeros((1, 4))).round(3).tolist()
    [0.25]
    """
    return jnp.exp(jax.nn.logsumexp(2.0 * logits, axis=-1) - 2.0 * jax.nn.logsumexp(logits, axis=-1))
