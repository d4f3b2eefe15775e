"""Advantage `turn_returns`: what each turn brings from then on, against all turns of the prompt."""

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
    """The return from each turn on, as if every turn were a sample of its own.

        A_it = (R_ik - mean_G(R)) / (std_G(R) + ε),  k the turn of token t
        R_ik = ∑_{j ≥ k} γ^(j-k)·r_ij

    with r_ij the rewards on the tokens of turn j, and G *all turns* of the episodes of i's prompt. Baronio et al. 2025,
    *Kevin: multi-turn RL for generating CUDA kernels*, where each turn writes a kernel anew and is rewarded for it, and
    for what the next ones make of it.

    Deltas against `grpo`:

    1. turns are compared instead of episodes, by what they bring from then on;
    2. an episode counts as often as it has turns.

    Args:
        token_rewards: r; what the interaction gave to a turn sits on the last policy token of the turn, the score on
            the last one of the episode.
        turns: which turn a token belongs to.
        group_ids: any labels; groups may be interleaved and of unequal size.
        mask: policy tokens. A row or a turn without any is in no group.
        gamma: γ, discount per turn; 0.4 in the paper, whose turns are rewarded each. Where a reward comes at the end
            alone, γ < 1 makes late turns better than early ones.
        scale: divide by the standard deviation of G (Bessel's correction), or by nothing.
        epsilon: ε, in units of reward; not used under `scale="none"`.

    Returns:
        A, the same at every policy token of a turn and zero elsewhere. If all returns of a prompt are equal it is
        exactly zero.

    Departures:
        The mean has the turn itself in it, and weighs episodes by their turns; `turn_rloo` is without either.

    >>> import jax.numpy as jnp
    >>> ids, mask, turns = jnp.array([3, 3]), jnp.ones((2, 2), bool), jnp.array([[0, 1], [0, 1]])
    >>> turn_returns(jnp.array([[1.0, 2.0], [0.5, -1.0]]), turns, ids, mask, gamma=0.5, scale="none")  # R: 2 2 0 -1
    Array([[ 1.25,  1.25],
           [-0.75, -1.75]], dtype=float32)
    """
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask)
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, gamma)
    advantages = relative(all_turns(groups, by_turn.live), returns.ravel(), scale, epsilon)
    return by_turn.per_token(advantages.reshape(returns.shape))
