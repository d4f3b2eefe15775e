"""Advantage `turn_rloo`: the return from each turn on, minus the mean of the other episodes' at the same turn."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, Turns, latest, returns_to_go


def turn_rloo(
    token_rewards: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    ended: Literal["last", "out"] = "last",
) -> Float[Array, "seq token"]:
    """Leave-one-out advantage of each turn: its return minus the mean return of the others at the same turn.

        A_it = R_ik - 1/(n-1)·∑_{j ∈ G, j ≠ i} R_j,min(k,K_j),  k the turn of token t
        R_ik = ∑_{j ≥ k} γ^(j-k)·r_ij

    with r_ij the sum of the rewards on the tokens of turn j, G the n episodes of i's prompt, and K_j the last turn of
    episode j: an episode that ended before turn k still counts, with the return of its last turn. The baseline depends
    neither on what i does in turn k nor on when i ends, so that the policy gradient stays unbiased if the policy itself
    decides whether to take another turn. (A sum of baselines for the rewards of the remaining turns would have as many
    terms as i has turns left: another turn would then cost the average reward of a turn.) Liu et al. 2026, *Dr. Kernel:
    reinforcement learning done right for Triton kernel generations*, equations 2 and 5 (TRLOO).

    Deltas against `rloo`:

    1. a return and a baseline for each turn, so that a turn gets no credit for earlier rewards. If the only reward
       comes at the end, and γ = 1, it is `rloo`.

    Args:
        token_rewards: r; the interaction's reward for a turn is on the last policy token of the turn, the score on
            the last one of the episode.
        turns: which turn a token belongs to.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.
        gamma: γ, discount per turn; 1 in the paper.
        ended: how an episode that has ended counts in the baseline of later turns. "last": with the return of its last
            turn; "out": not at all, so that the mean is over the other episodes with a turn k, as in the paper.

    Returns:
        A, in units of reward, the same at every policy token of a turn and zero elsewhere. A group of one gets zero.

    Departures:
        In the paper a turn that no other episode reaches has no baseline, and implementations give it its raw return;
        with `ended="out"` it gets zero here, like a group of one, at the cost of a bias.

    >>> ids, mask = jnp.array([3, 3]), jnp.ones((2, 2), bool)
    >>> rewards, turns = jnp.array([[1.0, 2.0], [0.0, 1.0]]), jnp.array([[0, 1], [0, 0]])
    >>> turn_rloo(rewards, turns, ids, mask).tolist()  # turn 1 against what ended in turn 0
    [[2.0, 1.0], [-2.0, -2.0]]
    """
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask)
    live = by_turn.live
    returns = returns_to_go(by_turn.total(token_rewards), live, gamma)
    members = live if ended == "out" else jnp.broadcast_to(groups.live[:, None], live.shape)
    others = returns if ended == "out" else jnp.take_along_axis(returns, latest(live), axis=1)

    def at(returns: Float[Array, "seq"], members: Bool[Array, "seq"]) -> Float[Array, "seq"]:
        group = Groups(groups.segments, members)
        deviations = group.deviations(returns)
        sizes = group.sizes.astype(deviations.dtype)
        return deviations * (sizes / jnp.maximum(sizes - 1.0, 1.0))

    return by_turn.per_token(jax.vmap(at, in_axes=1, out_axes=1)(others, members))
