"""Advantage `gdpo`: each reward normalised within its group before they are added up, then whitened."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision, in_units_of, per_token, whiten
from dovetail.errors import ConfigError
from dovetail.registry import declares


@declares(per_reward=("weights",), shift_invariant=True, whitened=True)
def gdpo(
    score_table: Float[Array, "seq reward"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    weights: tuple[float, ...] | None = None,
    scale: Literal["group", "none"] = "group",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
    over: Literal["tokens", "completions"] = "tokens",
) -> Float[Array, "seq token"]:
    """Group-relative advantage of each reward separately, summed, and whitened over the batch.

        D_ik = (r_ik - mean_G(r_k)) / (std_G(r_k) + ε),  G the completions of i's prompt
        S_i = ∑_k w_k·D_ik
        A_it = (S_i - mean(S)) / √(var(S) + 1e-8)

    with std and var using Bessel's correction. If rewards are added up first, as for `grpo`, equal sums get the same
    advantage whatever they consist of, and a reward with a wide spread drowns out the others. Liu et al. 2026,
    *GDPO: group reward-decoupled normalization policy optimization for multi-reward RL optimization*.

    Deltas against `grpo`:

    1. rewards are normalised separately, and weighted after that.
    2. A is whitened over the batch, so that its size does not grow with the number of rewards.

    Args:
        score_table: r, one column per reward of `train.rewards`, in units of reward; NaN where a reward abstained,
            which excludes the completion from that reward's group and from the sum. Reward shaping and KL penalties
            are not included.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.
        weights: w, one per reward in the order of `train.rewards`; None means 1 for each. The reward manager's weights
            have no effect, because they enter only `scores`.
        scale: "group" divides by std_G(r_k) + ε, "none" does not divide.
        epsilon: ε, in units of reward.
        over: the population of mean and var. "tokens": all policy tokens of the batch, so that a completion counts as
            often as it has tokens, as in the paper's code. "completions": each completion once, with the divisor
            √var(S) + ε, as in the paper.

    Returns:
        A, in standard deviations, the same at every policy token of a completion and zero elsewhere. A group of one
        and a group of equal scores have S = 0, which whitening shifts like any other value; a batch of only such groups
        gets zero.

    Raises:
        ConfigError: if there are more or fewer weights than rewards.

    Departures:
        verl counts rows without policy tokens as members of their group, uses the raw score as D in a group of one,
        and raises an error on a batch of one policy token, which gets zero here. TRL's ε is 1e-4, over completions.

    >>> table, mask = jnp.array([[1.0, 0.0], [0.0, 0.5], [7.0, jnp.nan]]), jnp.ones((3, 1), bool)
    >>> gdpo(table, jnp.array([3, 3, 8]), mask, weights=(1.0, 0.5)).round(3).tolist()
    [[1.0], [-1.0], [0.0]]
    """
    table = full_precision(score_table)
    rewards = table.shape[1]
    if weights is not None and len(weights) != rewards:
        raise ConfigError(
            f"advantage.gdpo.weights has {len(weights)} number{'s' * (len(weights) != 1)}, but train.rewards names"
            f" {rewards} reward{'s' * (rewards != 1)}; give one for each, in the order of train.rewards"
        )
    groups = Groups.of(group_ids, mask)

    def normalised(column: Float[Array, "seq"]) -> Float[Array, "seq"]:
        judged = Groups(groups.segments, groups.live & ~jnp.isnan(column))
        deviations = judged.deviations(column)
        return in_units_of(deviations, judged.std(column), epsilon) if scale == "group" else deviations

    parts = jax.vmap(normalised, in_axes=1, out_axes=1)(table)
    totals = jnp.sum(parts * jnp.array(weights or (1.0,) * rewards, table.dtype)[None, :], axis=1)
    if over == "tokens":
        return whiten(per_token(totals, mask), mask)
    batch = Groups.whole(mask)
    return per_token(in_units_of(batch.deviations(totals), batch.std(totals), epsilon), mask)
