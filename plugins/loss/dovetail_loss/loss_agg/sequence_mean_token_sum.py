"""Aggregation `sequence_mean_token_sum`: the sum over a completion's tokens, averaged over completions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def sequence_mean_token_sum(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Sum over the tokens of each completion, then mean over completions.

        w_it = m_it / N,  N = #{i : n_i > 0}

    The policy gradient of the expected return as stated by Sutton et al. 1999, *Policy gradient methods for
    reinforcement learning with function approximation*, with a completion as the episode. Liu et al. 2025,
    *Understanding R1-Zero-like training*, recommend it because no weight depends on the length.

    Args:
        mask: m, policy tokens of the whole mini-batch; completions without any (n_i = 0) are not counted.

    Returns:
        Weights; all zero if the mask is empty.

    >>> sequence_mean_token_sum(jnp.array([[True, True], [True, False], [False, False]])).tolist()
    [[0.5, 0.5], [0.5, 0.0], [0.0, 0.0]]
    """
    sequences = jnp.sum(jnp.any(mask, axis=-1), dtype=float)
    return mask.astype(float) / jnp.maximum(sequences, 1.0)
