"""The score function under weights that are constants for the gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def weighted_score(
    weights: Float[Array, "seq #token"],
    logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> Float[Array, "seq token"]:
    """Return -sg[w]·A·log π: REINFORCE under weights that are constants for the gradient.

    Args:
        weights: w, finite everywhere; one per token, or one per completion as [seq, 1].
        logps: log π.
        advantages: A.
        mask: policy tokens; zero elsewhere.

    >>> weighted_score(jnp.array([[0.5]]), jnp.array([[-2.0]]), jnp.array([[3.0]]), jnp.array([[True]]))
    Array([[3.]], dtype=float32)
    """
    return jnp.where(mask, -jax.lax.stop_gradient(weights) * masked(advantages, mask) * masked(logps, mask), 0.0)
