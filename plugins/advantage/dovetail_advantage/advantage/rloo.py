"""Advantage `rloo`: the score minus the mean score of the prompt's other completions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, per_token
from dovetail.registry import declares


@declares(shift_invariant=True, zero_mean=True)
def rloo(
    scores: Float[Array, "seq"], group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Leave-one-out advantage: each completion's score minus the mean score of the others in its group.

        A_it = s_i - 1/(n-1)·∑_{j ∈ G, j ≠ i} s_j = n/(n-1)·(s_i - mean_G(s))

    with n = |G|, the completions of i's prompt. The baseline does not depend on the completion it is for, so the
    policy gradient stays unbiased. Ahmadian et al. 2024, *Back to basics: revisiting REINFORCE style optimization
    for learning from human feedback in LLMs*, the estimator RLOO; first in Kool et al. 2019, *Buy 4 REINFORCE
    samples, get a baseline for free!*

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.

    Returns:
        A, in units of reward, the same at every policy token of a completion and zero elsewhere. A group of one gets
        zero, and a group of equal scores exactly zero.

    Departures:
        verl counts rows without policy tokens as members of their group, and gives a group of one its raw score. Its
        `rloo_vectorized` gives a group of one zero, and is otherwise the same.

    >>> rloo(jnp.array([1.0, 0.0, 0.5, 5.0]), jnp.array([3, 3, 3, 8]), jnp.ones((4, 1), bool)).tolist()
    [[0.75], [-0.75], [0.0], [0.0]]
    """
    groups = Groups.of(group_ids, mask)
    deviations = groups.deviations(scores)
    sizes = groups.sizes.astype(deviations.dtype)
    return per_token(deviations * (sizes / jnp.maximum(sizes - 1.0, 1.0)), mask)
