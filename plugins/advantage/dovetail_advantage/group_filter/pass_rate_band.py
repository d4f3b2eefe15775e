"""Group filter `pass_rate_band`: keep groups whose pass rate is neither too high nor too low."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt, Lt
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision


def pass_rate_band(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    low: Annotated[float, Lt(1)] = 0.0,
    high: Annotated[float, Gt(0)] = 1.0,
    success_at: float = 1.0,
) -> Bool[Array, "seq"]:
    """Keep a group if the fraction of its completions that succeed lies strictly between two bounds.

        keep_i = low < mean_{j ∈ G(i)} [s_j ≥ success_at] < high

    With the bounds 0 and 1 and scores of 0 or 1 it is DAPO's dynamic sampling (Yu et al. 2025, equation 11).

    Args:
        scores: s, one per completion.
        group_ids: G, which prompt a completion answers.
        mask: policy tokens; a completion without any (or without a score) belongs to no group.
        low: lower bound of the pass rate, 0 to 1.
        high: upper bound.
        success_at: the score from which a completion succeeds.

    Returns:
        For each completion, whether its group is kept.

    >>> scores = jnp.array([1.0, 0.0, 1.0, 1.0])
    >>> pass_rate_band(scores, jnp.array([0, 0, 1, 1]), jnp.ones((4, 1), bool)).tolist()
    [True, True, False, False]
    """
    groups = Groups.of(group_ids, mask)
    rate = groups.total((full_precision(scores) >= success_at).astype(jnp.float32)) / groups.sizes
    return (rate > low) & (rate < high)
