"""Advantage `turn_returns`: the return from each turn on, relative to all turns of the prompt."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, Turns, returns_to_go
from dovetail_advantage.advantage._relative import all_turns, relative


def turn_returns(
    token_rewards: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    scale: Literal["none", "group"] = "group",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> Float[Array, "seq token"]:
    """The return from each turn on, normalised as if every turn were a separate sample.

        A_it = (R_ik - mean_G(R)) / (std_G(R) + ε),  k the turn of token t
        R_ik = ∑_{j ≥ k} γ^(j-k)·r_ij

    with r_ij the sum of the rewards on the tokens of turn j, and G *all turns* of the episodes of i's prompt. Baronio
    et al. 2025, *Kevin: multi-turn RL for generating CUDA kernels*, where each turn writes a new version of a kernel,
    and is rewarded for that version and for the later ones.

    Deltas against `grpo`:

    1. turns are compared instead of episodes, by their returns;
    2. an episode counts as often as it has turns.

    Args:
        token_rewards: r; the interaction's reward for a turn is on the last policy token of the turn, the score on
            the last one of the episode.
        turns: which turn a token belongs to.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row or a turn without any belongs to no group.
        gamma: γ, discount per turn; 0.4 in the paper, where each turn is rewarded. If the only reward comes at the end,
            γ < 1 gives late turns a higher return than early ones.
        scale: "group" divides by the standard deviation of G (Bessel's correction), "none" does not divide.
        epsilon: ε, in units of reward; unused if `scale="none"`.

    Returns:
        A, the same at every policy token of a turn and zero elsewhere. If all returns of a prompt are equal it is
        exactly zero.

    Departures:
        The mean includes the turn itself, and weights episodes by their number of turns; `turn_rloo` does neither.

    >>> import jax.numpy as jnp
    >>> ids, mask, turns = jnp.array([3, 3]), jnp.ones((2, 2), bool), jnp.array([[0, 1], [0, 1]])
    >>> rewards = jnp.array([[1.0, 2.0], [0.5, -1.0]])  # R: 2 2 0 -1
    >>> turn_returns(rewards, turns, ids, mask, gamma=0.5, scale="none").tolist()
    [[1.25, 1.25], [-0.75, -1.75]]
    """
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask)
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, gamma)
    advantages = relative(all_turns(groups, by_turn.live), returns.ravel(), scale, epsilon)
    return by_turn.per_token(advantages.reshape(returns.shape))
