"""Aggregation `sequence_mean_token_scale`: the sum over a completion divided by a constant, then averaged."""

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
    `dr_grpo`, where Z is `max_completion_length`. As in `sequence_mean_token_sum`, no weight depends on a completion's
    length, but losses keep the scale of a mean.

    Args:
        mask: m, policy tokens of the whole mini-batch; completions without any (n_i = 0) are not counted.
        normalizer: Z, in tokens, for example the length limit. There is no default.

    Returns:
        Weights; all zero if the mask is empty.

    Departures:
        verl's mode `seq-mean-token-sum-norm` and tunix's `sequence-mean-token-scale` use the width of the padded batch
        if no Z is given, so that the loss depends on the padding; here Z is required. TRL's N includes empty
        completions. tunix's `sequence-mean-token-sum-norm` is a different weighting, `token_sum`.

    >>> sequence_mean_token_scale(jnp.array([[True, True], [True, False], [False, False]]), normalizer=2.0).tolist()
    [[0.25, 0.25], [0.25, 0.0], [0.0, 0.0]]
    """
    sequences = jnp.sum(jnp.any(mask, axis=-1), dtype=float)
    return mask.astype(float) / (normalizer * jnp.maximum(sequences, 1.0))
