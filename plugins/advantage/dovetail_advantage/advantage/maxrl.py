"""Advantage `maxrl`: the score minus its group's mean, in units of that mean."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, per_token
from dovetail.registry import declares


@declares(zero_mean=True)
def maxrl(
    scores: Float[Array, "seq"], group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Maximum-likelihood advantage: each completion's score minus its group's mean, over that mean.

        A_it = (s_i - mean_G(s)) / mean_G(s),  G the completions of i's prompt; zero where mean_G(s) ≤ 0

    With scores of 0 and 1, p the probability of a 1, and n = |G|, its policy gradient is an unbiased estimate of that
    of -∑_{k=1..n-1} (1-p)ᵏ/k, the first terms of the expansion of log p: the objective is p for n = 2, and approaches
    the log-likelihood of success as n grows. Tajwar et al. 2026, *Maximum likelihood reinforcement learning*.

    Deltas against `grpo`:

    1. the divisor is the group's mean instead of its standard deviation: a single success among n completions gets
       n - 1, where `grpo` gives it (n - 1)/√n.

    Args:
        scores: s, one per completion; 0 or 1 in the paper. They should not be negative. Since A is divided by the mean,
            adding a constant to all scores changes it.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.

    Returns:
        A, dimensionless, the same at every policy token of a completion and zero elsewhere. A group of one, a group of
        equal scores and a group whose mean is not positive get exactly zero.

    Departures:
        The paper's estimator without the mean as a baseline covers n terms of log p; the baseline, which exists only if
        some completion succeeds, costs one of them. TRL adds an ε to the mean; prime-rl does not.

    >>> ids, mask = jnp.array([3, 3, 3, 3, 8]), jnp.ones((5, 1), bool)
    >>> maxrl(jnp.array([1.0, 0.0, 0.0, 0.0, 1.0]), ids, mask).tolist()
    [[3.0], [-1.0], [-1.0], [-1.0], [0.0]]
    """
    groups = Groups.of(group_ids, mask)
    deviations = groups.deviations(scores)
    means = groups.total(scores) / groups.sizes.astype(deviations.dtype)
    positive = means > 0
    return per_token(jnp.where(positive, deviations / jnp.where(positive, means, 1.0), 0.0), mask)
