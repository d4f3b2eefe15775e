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
    """Group-relative advantage of each reward by itself, summed, and whitened over the batch.

        D_ik = (r_ik - mean_G(r_k)) / (std_G(r_k) + ε),  G the completions of i's prompt
        S_i = ∑_k w_k·D_ik
        A_it = (S_i - mean(S)) / √(var(S) + 1e-8)

    with std and var after Bessel's correction. Where rewards are added up first, as in `grpo`, the same sum means
    the same advantage whatever it is made of, and a reward of wide spread drowns the others. Liu et al. 2026,
    *GDPO: group reward-decoupled normalization policy optimization for multi-reward RL optimization*.

    Deltas against `grpo`:

    1. rewards are normalised one by one, and weighted after that.
    2. whitened over the batch, so that the size of A does not grow with the number of rewards.

    Args:
        score_table: r, one column per reward of `train.rewards`, in units of reward; NaN where a reward abstained,
            which leaves the completion out of that reward's group and out of the sum. What reward shaping or a KL
            penalty take from a completion is not in it.
        group_ids: any labels; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any is in no group.
        weights: w, one per reward in the order of `train.rewards`; None: 1 for each. The reward manager's weights
            make up `scores`, which is not read.
        scale: divide by std_G(r_k), or by nothing.
        epsilon: ε, in units of reward.
        over: what mean and var are over: "tokens", all policy tokens of the batch, so that a completion counts as
            often as it has tokens, as in the paper's code; "completions", each once, and divided by √var(S) + ε, as
            in the paper.

    Returns:
        A, in standard deviations, the same at every policy token of a completion and zero elsewhere. A group of one
        and a group of equal scores have S = 0, which the whitening moves by what it moves all others; a batch of
        such groups gets zero.

    Raises:
        ConfigError: if there are more or fewer weights than rewards.

    Departures:
        verl counts rows without policy tokens as members of their group, takes D of a group of one to be its raw
        score, and fails on a batch of one policy token, which gets zero here. TRL's ε is 1e-4, over completions.

    >>> table, mask = jnp.array([[1.0, 0.0], [0.0, 0.5], [7.0, jnp.nan]]), jnp.ones((3, 1), bool)
    >>> gdpo(table, jnp.array([3, 3, 8]), mask, weights=(1.0, 0.5)).round(3)
    Array([[ 1.],
           [-1.],
           [ 0.]], dtype=float32)
    """
    table = full_precision(score_table)
    rewards = table.shape[1]
    if weights is not None and len(weights) != rewards:
        raise ConfigError(
            f"advantage.gdpo.weights has {len(weights)} number{'s' * (len(weights) != 1)} and train.rewards names"
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
