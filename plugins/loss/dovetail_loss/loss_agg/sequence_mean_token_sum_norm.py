"""Aggregation `sequence_mean_token_sum_norm`: the sum over tokens, over a constant or the number of completions."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float


def sequence_mean_token_sum_norm(
    mask: Bool[Array, "seq token"], *, normalizer: Annotated[float, Gt(0)] | None = None
) -> Float[Array, "seq token"]:
    """Sum over all policy tokens of the mini-batch, divided by a constant, or else by the number of completions.

        w_it = m_it / Z,  Z = `normalizer`, or N = #{i : n_i > 0} where it is None

    tunix's mode of that name. In spite of the name a given constant takes the place of the mean over completions: it is
    then `token_sum`, and without one `sequence_mean_token_sum`. verl's `seq-mean-token-sum-norm` is another thing,
    `sequence_mean_token_scale`.

    Args:
        mask: m, policy tokens of the whole mini-batch; completions without any (n_i = 0) are not counted.
        normalizer: Z, or None for N.

    Returns:
        Weights; all zero where the mask is empty.

    >>> sequence_mean_token_sum_norm(jnp.array([[True, True], [True, False], [False, False]]))
    Array([[0.5, 0.5],
           [0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    sequences = jnp.maximum(jnp.sum(jnp.any(mask, axis=-1), dtype=float), 1.0)
    return mask.astype(float) / (sequences if normalizer is None else normalizer)
