"""Advantage `decoupled_gae`: generalised advantage estimation with one λ for the policy and one for the critic."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import gae_trace, masked
from dovetail.arrays import whiten as whitened


def decoupled_gae(
    token_rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    lam: Annotated[float, Interval(ge=0, le=1)] = 0.95,
    critic_lam: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    whiten: bool = True,
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Generalised advantage estimation with one λ for the policy's advantages and another for the critic's targets.

        A_t = GAE(γ, λ)_t,   R_t = GAE(γ, λ_critic)_t + V_t

    Yuan et al. 2025, *What's behind PPO's collapse in long-CoT? Value optimization holds the secret* (VC-PPO), the
    decoupled GAE. With λ_critic = 1 the targets are the returns themselves: a reward at the end of a long completion
    reaches the critic's target at the first token undiminished, whereas with λ_critic = 0.95 only 0.95ⁿ of it is left n
    tokens earlier.

    Deltas against `gae`:

    1. the critic's targets have a λ of their own; with equal values it is `gae`.

    Args:
        token_rewards: r; the score is on the last policy token.
        values: V, the critic at collection, in units of reward.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per policy token.
        lam: λ, decay of the trace per policy token in A.
        critic_lam: λ_critic, the same in R.
        whiten: shift and scale A to mean 0 and standard deviation 1 over all policy tokens of the batch, as in `gae`.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        None known from the paper.

    >>> import jax.numpy as jnp
    >>> rewards, values, mask = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, 0.5]]), jnp.ones((1, 2), bool)
    >>> advantages, returns = decoupled_gae(rewards, values, mask, lam=0.0, whiten=False)
    >>> print(advantages, returns)
    [[0.  0.5]] [[1. 1.]]
    """
    advantages = gae_trace(token_rewards, values, mask, gamma, lam)
    returns = masked(gae_trace(token_rewards, values, mask, gamma, critic_lam) + masked(values, mask), mask)
    return (whitened(advantages, mask) if whiten else advantages), returns
