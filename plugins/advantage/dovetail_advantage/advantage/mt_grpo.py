"""Advantage `mt_grpo`: the advantage of the outcome, and in the first turn also that of the turn's own reward."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision, masked, per_token
from dovetail.registry import declares
from dovetail_advantage.advantage._relative import relative


@declares(shift_invariant=True)
def mt_grpo(
    scores: Float[Array, "seq"],
    turn_rewards: Float[Array, "seq turn"],
    turn_mask: Bool[Array, "seq turn"],
    turns: Int[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    turn_weight: Annotated[float, Ge(0)] = 1.0,
    scale: Literal["none", "group"] = "group",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> Float[Array, "seq token"]:
    """Multi-turn GRPO: the first turn gets credit for its own reward and for the outcome, later turns for the outcome.

        A_it = N(o)_i + λ·N(τ)_i   in the first turn
        A_it = N(o)_i              after it
        A_it = N(s)_i              in an episode of one turn

    with τ the first turn's reward, o = s - τ the rest of the score, and N(x)_i = (x_i - mean_G(x)) / (std_G(x) + ε)
    over the episodes G of i's prompt. Zeng et al. 2025, *Reinforcing multi-turn reasoning in LLM agents via turn-level
    credit assignment*, for an agent that calls a tool and then answers: τ rewards the call, o the answer.

    Deltas against `grpo`:

    1. two rewards, normalised separately; one of them applies only to the tokens of the first turn.

    Args:
        scores: s, one per episode, including the rewards of its turns, in units of reward.
        turn_rewards: the reward of each turn; the first one is τ, and the others are part of o.
        turn_mask: true on the turns that took place.
        turns: which turn a token belongs to.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.
        turn_weight: λ; 1 in the authors' code.
        scale: "group" divides by the group's standard deviation (Bessel's correction), "none" does not divide.
        epsilon: ε, in units of reward; 1e-4 in the authors' code. Unused if `scale="none"`.

    Returns:
        A, zero outside the mask. A group of one gets zero, and a group of equal rewards exactly zero.

    Departures:
        In the authors' code, functions of the whole episode compute τ, o and s, each with weights of its own. Later
        turns have no baselines of their own here: summed over the remaining turns, these would reward or penalise
        taking another turn. For rewards on many turns, use `turn_rloo` or `turn_returns`.

    >>> scores, earned = jnp.array([1.0, 1.0]), jnp.array([[1.0, 0.0], [0.0, 0.0]])
    >>> ids, mask, turns = jnp.array([3, 3]), jnp.ones((2, 2), bool), jnp.array([[0, 1], [0, 1]])
    >>> mt_grpo(scores, earned, jnp.ones((2, 2), bool), turns, ids, mask, turn_weight=2.0, scale="none").tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    groups = Groups.of(group_ids, mask)
    earned = masked(turn_rewards[:, 0], turn_mask[:, 0])
    whole = relative(groups, scores, scale, epsilon)
    outcome = relative(groups, full_precision(scores) - earned, scale, epsilon)
    turn = relative(groups, earned, scale, epsilon)
    goes_on = jnp.any(turn_mask[:, 1:], axis=1)
    advantages = per_token(jnp.where(goes_on, outcome, whole), mask)
    return advantages + per_token(turn_weight * turn, mask & (turns == 0) & goes_on[:, None])
