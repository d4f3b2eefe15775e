"""Advantage `bi_level_gae`: generalised advantage estimation over turns, and within each turn over its tokens."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Turns, gae_trace, masked
from dovetail.arrays import whiten as whitened


def bi_level_gae(
    token_rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    turn_gamma: Annotated[float, Interval(ge=0, le=1)] = 0.95,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    lam: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    whiten: bool = True,
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Generalised advantage estimation on two levels, with a discount for turns and another for tokens.

        δ_k = r_k + Γ·(b_k+1 + V_k+1) - V_k,   A_k = δ_k + Γ·λ·A_k+1   over the last tokens of turns
        δ_t = r_t + γ·V_t+1 - V_t,             A_t = δ_t + γ·λ·A_t+1   over the tokens of a turn
        A_t = A_k at the last token of turn k,   R_t = A_t + V_t

    with r_k and V_k the reward and value at the last policy token of turn k, b_k the sum of the rewards on its earlier
    tokens, and V = A = 0 after the last turn. The outer trace gives each turn its advantage, and the inner one spreads
    that over the turn's tokens. Wang et al. 2025, *VAGEN: reinforcing world model reasoning for multi-turn VLM agents*,
    Bi-Level GAE; also in RAGEN.

    Deltas against `gae`:

    1. from one turn to the next the discount is Γ, regardless of the number of tokens in between;
    2. a token-level trace ends with its turn, and the turn-level trace visits only the last token of each turn, so that
       λ < 1 reduces the credit of early turns by the number of turns after them, not of tokens.

    With Γ = γ = 1 and λ = 1 it is `gae`.

    Args:
        token_rewards: r; the interaction's reward for a turn is on the last policy token of the turn, the score on
            the last one of the episode.
        values: V, the critic at collection, in units of reward.
        turns: which turn a token belongs to.
        mask: policy tokens; values elsewhere are ignored.
        turn_gamma: Γ, discount per turn; 0.95 in the authors' examples.
        gamma: γ, discount per policy token of a turn.
        lam: λ, decay of both traces.
        whiten: shift and scale A to mean 0 and standard deviation 1 over all policy tokens of the batch, as in `gae`.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        RAGEN treats every token with a reward as the end of a turn: a turn without a reward is then missed and, with a
        KL penalty in the reward, every token is one. In both implementations b is zero: earlier turns get no credit for
        rewards on tokens other than the last of a turn, such as a KL penalty.

    >>> rewards, values = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[0.5, 0.5, 0.25]])
    >>> turns, mask = jnp.array([[0, 0, 1]]), jnp.ones((1, 3), bool)
    >>> advantages, returns = bi_level_gae(rewards, values, turns, mask, turn_gamma=0.5, whiten=False)
    >>> print(advantages, returns)
    [[0.   0.   0.75]] [[0.5 0.5 1. ]]
    """
    by_turn = Turns.of(turns, mask)
    rewards, values, ends = masked(token_rewards, mask), masked(values, mask), by_turn.ends
    # adding b to both r and V makes δ_k that of an ordinary trace
    body = by_turn.total(jnp.where(ends, 0.0, rewards))
    at_ends = by_turn.total(jnp.where(ends, values, 0.0))
    outer = gae_trace(by_turn.total(rewards), at_ends + body, by_turn.live, turn_gamma, lam)
    inside = jnp.where(ends, by_turn.at_ends(outer) + values, rewards)
    advantages = gae_trace(inside, values, mask, gamma, lam, ends)
    return (whitened(advantages, mask) if whiten else advantages), masked(advantages + values, mask)
