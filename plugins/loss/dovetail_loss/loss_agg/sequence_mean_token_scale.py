"""Aggregation `sequence_mean_token_scale`: a completion's sum over a constant, averaged."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float


def sequence_mean_token_scale(
    mask: Bool[Array, "seq token"], *, normalizer: Annotated[float, Gt(0)]
) -> Float[Array, "seq token"]:
    """Sum over the tokens of each completion, divided by a constant length, then mean over completions.

        w_it = m_it / (Z·N),  N = #{i : n_i > 0}

    Dr. GRPO: Liu et al. 2025, *Understanding R1-Zero-like training*, section 3.2 and listing 1; TRL's
    `dr_grpo` with Z its `max_completion_length`. No weight depends on a completion's length, as in
    `sequence_mean_token_sum`, and losses keep the size of a mean.

    Args:
        mask: m, policy tokens of the whole mini-batch; completions without any (n_i = 0) are not counted.
        normalizer: Z, in tokens: the length limit, say. There is no default.

    Returns:
        Weights; all zero where the mask is empty.

    Departures:
        verl's mode `seq-mean-token-sum-norm` and tunix's `sequence-mean-token-scale` take the width of the padded
        batch where no Z is given, so that the loss depends on the padding; here Z is required. TRL's N counts
        empty completions, too. tunix's `sequence-mean-token-sum-norm` is another weighting, `token_sum`.

    >>> sequence_mean_token_scale(jnp.array([[True, True], [True, False], [False, False]]), normalizer=2.0)
    Array([[0.25, 0.25],
           [0.25, 0.  ],
           [0.  , 0.  ]], dtype=float32)
    """
    sequences = jnp.sum(jnp.any(mask, axis=-1), dtype=float)
    return mask.astype(float) / (normalizer * jnp.maximum(sequences, 1.0))
