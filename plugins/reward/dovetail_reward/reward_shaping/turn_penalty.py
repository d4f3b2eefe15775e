"""Reward shaping `turn_penalty`: a penalty per turn, in proportion to how often the prompt is solved."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, masked
from dovetail_reward.reward_shaping._last import at_last


def turn_penalty(
    token_rewards: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    turn_mask: Bool[Array, "seq turn"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    weight: Annotated[float, Ge(0)] = 0.1,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Penalise an episode at its last policy token, in proportion to its number of turns.

        R_turns = -w·mean_G(s)·T_i / max_G(T),  G the episodes of i's prompt

    with T the number of turns in an episode. The mean score, a pass rate if scores are 0 or 1, makes turns free as long
    as the prompt is never solved. Known from prime-rl: the turn term of its linear length penalty.

    Args:
        token_rewards: rewards per token, to which it is added; cast to float32, unless float64.
        scores: s, one per episode.
        turn_mask: true on the turns that took place.
        group_ids: equal labels form a group.
        mask: policy tokens; a row without any is in no group and gets nothing.
        weight: w; 0.1 in prime-rl.

    Returns:
        The rewards, zero outside the mask, and `penalty`, R_turns of each episode. A negative mean score counts as
        zero, because it would turn the penalty into a bonus.

    Departures:
        In prime-rl a negative mean score does become a bonus for turns.

    >>> zeros, scores = jnp.zeros((2, 2)), jnp.array([1.0, 0.0])
    >>> ids, true = jnp.array([3, 3]), jnp.ones((2, 2), bool)
    >>> turn_penalty(zeros, scores, jnp.array([[True, False], [True, True]]), ids, true, weight=1.0)[0].tolist()
    [[0.0, -0.25], [0.0, -0.5]]
    """
    rewards, groups = masked(token_rewards, mask), Groups.of(group_ids, mask)
    counts = jnp.where(groups.live, jnp.sum(turn_mask, axis=1), 0)
    most = jax.ops.segment_max(counts, groups.segments, num_segments=len(counts))[groups.segments]
    share = counts.astype(rewards.dtype) / jnp.maximum(most, 1).astype(rewards.dtype)
    mean = groups.total(scores).astype(rewards.dtype) / groups.sizes.astype(rewards.dtype)
    penalties = masked(-weight * jnp.maximum(mean, 0.0) * share, groups.live)
    return rewards + at_last(penalties, mask), {"penalty": penalties}
