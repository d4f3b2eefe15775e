"""Advantage `turn_gae`: generalised advantage estimation over turns instead of tokens."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Turns, gae_trace
from dovetail.arrays import whiten as whitened


def turn_gae(
    token_rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99,
    lam: Annotated[float, Interval(ge=0, le=1)] = 0.9,
    whiten: bool = True,
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Generalised advantage estimation in which a whole turn is one action.

        δ_k = r_k + γ·V_k+1 - V_k,   V_k the critic before the first token of turn k
        A_k = δ_k + γ·λ·A_k+1,   V = A = 0 after the last turn
        A_it = A_k,  R_it = A_k + V_k,  k the turn of token t

    with r_k the sum of the rewards on the tokens of turn k. The critic then needs to value only the states between
    turns, not unfinished sentences, and a long turn is not discounted more than a short one. Li et al. 2025, *Turn-PPO:
    turn-level advantage estimation with PPO for improved multi-turn RL in agentic LLMs*.

    Deltas against `gae`:

    1. steps are turns, so that γ and λ apply per turn.

    Args:
        token_rewards: r; the interaction's reward for a turn is on the last policy token of the turn, the score on
            the last one of the episode. Rewards on other tokens of the turn, such as a KL penalty, are added.
        values: V, the critic at collection, in units of reward; read at the first policy token of each turn.
        turns: which turn a token belongs to.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per turn; 0.99 in the paper.
        lam: λ, decay of the trace per turn; 0.9 in the paper.
        whiten: shift and scale A to mean 0 and standard deviation 1 over all policy tokens of the batch, as in `gae`.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        The critic is trained towards R at every token of a turn, whereas VAGEN's turn-level code trains it only at the
        first one: here every token's value is defined, and may depend on the text of the turn.

    >>> import jax.numpy as jnp
    >>> rewards, values = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[0.5, 9.0, 0.25]])
    >>> turns, mask = jnp.array([[0, 0, 1]]), jnp.ones((1, 3), bool)
    >>> advantages, returns = turn_gae(rewards, values, turns, mask, gamma=1.0, lam=0.0, whiten=False)
    >>> print(advantages, returns)
    [[-0.25 -0.25  0.75]] [[0.25 0.25 1.  ]]
    """
    by_turn = Turns.of(turns, mask)
    before = by_turn.first(values)
    by_turns = gae_trace(by_turn.total(token_rewards), before, by_turn.live, gamma, lam)
    advantages, returns = by_turn.per_token(by_turns), by_turn.per_token(by_turns + before)
    return (whitened(advantages, mask) if whiten else advantages), returns
