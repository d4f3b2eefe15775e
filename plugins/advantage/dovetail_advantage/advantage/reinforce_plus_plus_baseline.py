"""Advantage `reinforce_plus_plus_baseline`: the score minus its group's mean, whitened over the batch."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, per_token, whiten
from dovetail.registry import declares


@declares(shift_invariant=True, whitened=True)
def reinforce_plus_plus_baseline(
    scores: Float[Array, "seq"], group_ids: Int[Array, "seq"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """The score minus the mean score of the same prompt, whitened over the policy tokens of the batch.

        D_i = s_i - mean_G(s),  G the completions of i's prompt
        A_it = (D_i - mean(D)) / √(var(D) + 1e-8)

    where mean and var (Bessel's correction) are over all policy tokens of the batch, so that a completion counts as
    often as it has tokens. Hu 2025, *REINFORCE++: an efficient RLHF algorithm with robustness to both prompt and
    reward models*, the variant with a baseline.

    Deltas against `dr_grpo`:

    1. whitening over the batch.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.

    Returns:
        A, in standard deviations, the same at every policy token of a completion and zero elsewhere. A group of one
        and a group of equal scores have D = 0, which whitening shifts like any other value; a batch of only such groups
        gets zero.

    Departures:
        verl counts rows without policy tokens as members of their group, uses the raw score as D in a group of one,
        and raises an error on a batch of one policy token, which gets zero here.

    >>> import jax.numpy as jnp
    >>> ids, mask = jnp.array([3, 3, 8]), jnp.ones((3, 1), bool)
    >>> reinforce_plus_plus_baseline(jnp.array([1.0, 0.0, 5.0]), ids, mask).round(3).tolist()
    [[1.0], [-1.0], [0.0]]
    """
    return whiten(per_token(Groups.of(group_ids, mask).deviations(scores), mask), mask)
