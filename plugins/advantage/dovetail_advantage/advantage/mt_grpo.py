"""Advantage `mt_grpo`: that of the outcome, and before the first result that of the turn too."""

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
    """Multi-turn GRPO: the first turn is credited for what it earned and for the outcome, the others for the outcome.

        A_it = N(o)_i + λ·N(τ)_i   in the first turn
        A_it = N(o)_i              after it
        A_it = N(s)_i              in an episode of one turn

    with τ what the first turn earned, o = s - τ all else, and N(x)_i = (x_i - mean_G(x)) / (std_G(x) + ε) over the
    episodes G of i's prompt. Zeng et al. 2025, *Reinforcing multi-turn reasoning in LLM agents via turn-level credit
    assignment*, of an agent that calls a tool and then answers: τ rewards the call, o the answer.

    Deltas against `grpo`:

    1. two rewards, normalised one by one, of which one belongs to the tokens before the first result alone.

    Args:
        scores: s, one per episode, what its turns earned included, in units of reward.
        turn_rewards: what each turn earned; of these the first is τ, and the others are part of o.
        turn_mask: the turns that there were.
        turns: which turn a token belongs to.
        group_ids: any labels; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any is in no group.
        turn_weight: λ; 1 in the authors' code.
        scale: divide by the group's standard deviation (Bessel's correction), or by nothing.
        epsilon: ε, in units of reward; 1e-4 in the authors' code. Not used under `scale="none"`.

    Returns:
        A, zero outside the mask. A group of one gets zero, and a group in which all is equal exactly zero.

    Departures:
        In the authors' code functions of the whole episode give τ, o and s, each with weights of its own. There is no
        baseline for each turn here: one that is summed over the turns to come would pay for taking another turn; for
        rewards of many turns there are `turn_rloo` and `turn_returns`.

    >>> scores, earned = jnp.array([1.0, 1.0]), jnp.array([[1.0, 0.0], [0.0, 0.0]])
    >>> ids, mask, turns = jnp.array([3, 3]), jnp.ones((2, 2), bool), jnp.array([[0, 1], [0, 1]])
    >>> mt_grpo(scores, earned, jnp.ones((2, 2), bool), turns, ids, mask, turn_weight=2.0, scale="none")
    Array([[ 0.5, -0.5],
           [-0.5,  0.5]], dtype=float32)
    """
    groups = Groups.of(group_ids, mask)
    earned = masked(turn_rewards[:, 0], turn_mask[:, 0])
    whole = relative(groups, scores, scale, epsilon)
    outcome = relative(groups, full_precision(scores) - earned, scale, epsilon)
    turn = relative(groups, earned, scale, epsilon)
    goes_on = jnp.any(turn_mask[:, 1:], axis=1)
    advantages = per_token(jnp.where(goes_on, outcome, whole), mask)
    return advantages + per_token(turn_weight * turn, mask & (turns == 0) & goes_on[:, None])
