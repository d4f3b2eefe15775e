"""Aggregation `token_mean`: every token of the mini-batch has the same weight."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares


@declares(sums_to_one=True)
def token_mean(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Mean over all policy tokens of the mini-batch.

        w_it = m_it / ∑_jk m_jk

    Long completions have more weight than short ones. Yu et al. 2025, *DAPO*, equation 12; TRL's `bnpo` and `dapo`.

    Args:
        mask: m, policy tokens of the whole mini-batch.

    Returns:
        Weights that sum to one, or all zero if the mask is empty.

    Departures:
        An all-masked batch gives zero weights; verl gives NaN.

    >>> token_mean(jnp.array([[True, True, True], [True, False, False]])).tolist()
    [[0.25, 0.25, 0.25], [0.25, 0.0, 0.0]]
    """
    return mask.astype(float) / jnp.maximum(jnp.sum(mask, dtype=float), 1.0)
