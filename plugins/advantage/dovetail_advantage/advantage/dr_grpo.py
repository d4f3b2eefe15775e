"""Advantage `dr_grpo`: the score minus the mean score of the same prompt's completions."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, per_token
from dovetail.registry import declares


@declares(shift_invariant=True, zero_mean=True)
def dr_grpo(
    scores: Float[Array, "seq"], group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Group-relative advantage without the division by a standard deviation.

        A_it = s_i - mean_G(s),  G the completions of i's prompt

    Liu et al. 2025, *Understanding R1-Zero-like training: a critical perspective*, section 3.2.

    Deltas against `grpo`:

    1. no division by the group's standard deviation, which gives prompts that are nearly always or nearly never solved
       more weight than others.

    The paper's other change, no division by a completion's length, is an aggregation:
    `train.loss_agg = 'sequence_mean_token_scale'`.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.

    Returns:
        A, in units of reward, the same at every policy token of a completion and zero elsewhere. A group of one
        gets zero, and a group of equal scores exactly zero.

    Departures:
        As in `grpo`; verl implements this as `grpo` with `norm_adv_by_std_in_grpo=False`. prime-rl's
        `hierarchical_grpo`, for episodes in which a proposer makes a problem and solvers attempt it, compares
        completions of the same prompt, which is this function, since a group here consists of those.

    >>> import jax.numpy as jnp
    >>> dr_grpo(jnp.array([1.0, 0.0, 5.0]), jnp.array([3, 3, 8]), jnp.ones((3, 1), bool)).tolist()
    [[0.5], [-0.5], [0.0]]
    """
    return per_token(Groups.of(group_ids, mask).deviations(scores), mask)
