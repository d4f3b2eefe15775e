"""Field `positive_weights`: weights for a mean over the tokens of successful completions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import full_precision


def positive_weights(
    scores: Float[Array, "seq"], mask: Bool[Array, "seq token"], *, threshold: float = 0.0
) -> Float[Array, "seq token"]:
    """The weight that turns a mean over all policy tokens into one over those of successful completions.

        p_it = m_it·[score_i > θ]·N / N⁺

    with N the policy tokens of the mini-batch, and N⁺ those of completions whose score exceeds θ.

    Args:
        scores: the total reward of each completion.
        mask: m, policy tokens of the whole mini-batch.
        threshold: θ, in units of the score; 0 suits a verifier that returns 1 if correct and 0 or -1 if not.

    Returns:
        Weights; all zero if no completion succeeds.

    >>> positive_weights(jnp.array([1.0, 0.0]), jnp.array([[True, False], [True, True]])).tolist()
    [[3.0, 0.0], [0.0, 0.0]]
    """
    positive = mask & (full_precision(scores) > threshold)[:, None]
    factor = jnp.sum(mask, dtype=float) / jnp.maximum(jnp.sum(positive, dtype=float), 1.0)
    return jnp.where(positive, factor, 0.0)
