"""Advantage `gigpo`: the score relative to its prompt's, and each turn relative to turns from the same state."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
from annotated_types import Ge, Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, Turns, indicator, per_token, returns_to_go
from dovetail.registry import declares
from dovetail_advantage.advantage._relative import relative


@declares(by_turn=True)
def gigpo(
    scores: Float[Array, "seq"],
    token_rewards: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    anchor_ids: Int[Array, "seq turn"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.95,
    step_weight: Annotated[float, Ge(0)] = 1.0,
    scale: Literal["none", "group"] = "none",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Group-in-group advantage: that of the episode, plus that of the turn among all turns from the same state.

        A_it = A_i + w·A_ik,  k the turn of token t
        A_i  = (s_i - mean_G(s)) / F(s),  G the episodes of i's prompt
        A_ik = (R_ik - mean_H(R)) / F(R),  H the turns of G that began in the same state
        R_ik = r_ik + γ·R_i,k+1

    with r_ik the sum of the rewards on the tokens of turn k, and F either 1 or std + ε. Episodes of one prompt often
    visit the same state (even a single episode may), and their next turns can then be compared without a critic and
    without further sampling. Feng et al. 2025, *Group-in-group policy optimization for LLM agent training*, equations 3
    and 5 to 8.

    Deltas against `dr_grpo`:

    1. the term A_ik, which differs between the turns of an episode.

    Args:
        scores: s, one per episode, in units of reward.
        token_rewards: r; the interaction's reward for a turn is on the last policy token of the turn, the score on
            the last one of the episode.
        turns: which turn a token belongs to.
        anchor_ids: the state before each turn, as a number; equal states of one prompt have equal numbers. A turn with
            a negative number is not compared, and has A_ik = 0. An environment defines its states with `anchor`.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row or a turn without any belongs to no group.
        gamma: γ, discount per turn; 0.95 in the paper.
        step_weight: w; 1 in the paper.
        scale: "none" for F = 1; "group" to divide by the standard deviations of G and of H (Bessel's correction). The
            paper has both.
        epsilon: ε, in units of reward; unused if `scale="none"`.

    Returns:
        A, the same at every policy token of a turn and zero elsewhere; and the metric `shared`, 1 at the tokens of
        turns whose state was visited more than once. A_i is zero in a group of one, and A_ik in a state that was
        visited once; both are exactly zero where all values are equal. With γ < 1 a turn nearer to the end has a higher
        return, so that episodes with equal scores differ by how many turns they took from a state.

    Departures:
        verl-agent, the authors' code, gives a group of one its raw score, and has an option that treats states with
        similar texts as equal; here the environment decides that.

    >>> scores, ids, mask = jnp.array([1.0, 0.0]), jnp.array([3, 3]), jnp.ones((2, 2), bool)
    >>> rewards, turns = jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.array([[0, 1], [0, 1]])
    >>> anchors = jnp.array([[7, 8], [7, 9]])  # they part after turn 0
    >>> gigpo(scores, rewards, turns, anchors, ids, mask, gamma=0.5)[0].tolist()
    [[0.75, 0.5], [-0.75, -0.5]]
    """
    groups = Groups.of(group_ids, mask)
    by_turn = Turns.of(turns, mask, anchor_ids.shape[1])
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, gamma)
    places = _same_state(groups, anchor_ids, by_turn.live)
    steps = relative(places, returns.ravel(), scale, epsilon).reshape(returns.shape)
    company = (places.sizes > 1) & places.live
    shared = by_turn.per_token(company.reshape(returns.shape).astype(returns.dtype))
    episodes = per_token(relative(groups, scores, scale, epsilon), mask)
    return episodes + step_weight * by_turn.per_token(steps), {"shared": indicator(shared > 0, shared)}


def _same_state(groups: Groups, anchor_ids: Int[Array, "seq turn"], live: Bool[Array, "seq turn"]) -> Groups:
    """Group all turns, one after another, by prompt and state."""
    prompts = jnp.broadcast_to(groups.segments[:, None], anchor_ids.shape).ravel()
    anchors = anchor_ids.ravel()
    order = jnp.lexsort((anchors, prompts))
    differs = (jnp.diff(prompts[order]) != 0) | (anchors[order][1:] != anchors[order][:-1])
    numbers = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(differs, dtype=jnp.int32)])
    return Groups(jnp.zeros_like(numbers).at[order].set(numbers), live.ravel() & (anchors >= 0))
