"""Aggregation `sequence_mean_token_mean`: every completion has the same weight."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares


@declares(sums_to_one=True)
def sequence_mean_token_mean(mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Mean over the tokens of each completion, then over completions.

        w_it = m_it / (n_i·N),  n_i = ∑_t m_it,  N = #{i : n_i > 0}

    A token in a long completion has less weight than one in a short completion. Shao et al. 2024, *DeepSeekMath*,
    equation 3.

    Args:
        mask: m, policy tokens of the whole mini-batch; completions without any are not counted.

    Returns:
        Weights that sum to one, or all zero if the mask is empty.

    Departures:
        verl adds 1e-8 to n_i. An all-masked batch gives zero weights; verl gives NaN.

    >>> sequence_mean_token_mean(jnp.array([[True, True], [True, False], [False, False]])).tolist()
    [[0.25, 0.25], [0.5, 0.0], [0.0, 0.0]]
    """
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=float)
    sequences = jnp.sum(lengths > 0, dtype=float)
    return mask.astype(float) / (jnp.maximum(lengths, 1.0) * jnp.maximum(sequences, 1.0))
