"""Advantage `opo`: the score minus the length-weighted mean score of the same prompt's completions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision, per_token
from dovetail.registry import declares


@declares(shift_invariant=True)
def opo(
    scores: Float[Array, "seq"], group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Advantage over the minimum-variance baseline, if squared gradient norms are proportional to length.

        A_it = s_i - b_G,   b_G = ∑_{j ∈ G} l_j·s_j / ∑_{j ∈ G} l_j,  G the completions of i's prompt

    with l the number of policy tokens in a completion. Hao et al. 2025, *On-policy RL with optimal reward baseline*:
    the minimum-variance baseline weights scores by ‖∇ log π‖², which is roughly proportional to l if the gradients of
    different tokens are roughly orthogonal.

    Deltas against `dr_grpo`:

    1. the mean is weighted by length.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.

    Returns:
        A, in units of reward, the same at every policy token of a completion and zero elsewhere. A group of one
        gets zero, and a group of equal scores exactly zero.

    Departures:
        verl gives a group of one its raw score.

    >>> ids, mask = jnp.array([3, 3, 8]), jnp.array([[True, True, True], [True, False, False], [True, True, False]])
    >>> opo(jnp.array([1.0, 0.0, 5.0]), ids, mask).tolist()
    [[0.25, 0.25, 0.25], [-0.75, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    scores = full_precision(scores)
    lengths = jnp.sum(mask, axis=-1, dtype=scores.dtype)
    return per_token(Groups.of(group_ids, mask).deviations(scores, weights=lengths), mask)
