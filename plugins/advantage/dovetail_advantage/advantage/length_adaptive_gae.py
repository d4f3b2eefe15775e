"""Advantage `length_adaptive_gae`: generalised advantage estimation with a λ that grows with the length."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt, Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import gae_trace, masked
from dovetail.arrays import whiten as whitened


def length_adaptive_gae(
    token_rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    alpha: Annotated[float, Gt(0)] = 0.05,
    critic_lam: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    whiten: bool = True,
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Generalised advantage estimation in which the policy's λ depends on the completion's length.

        A_t = GAE(γ, λ_i)_t,   λ_i = 1 - 1/max(α·l_i, 1)
        R_t = GAE(γ, λ_critic)_t + V_t

    with l_i the number of policy tokens in completion i. The sum of the weights of one-step errors, ∑_k λᵏ = 1/(1-λ) =
    α·l, is then the same fraction of a short completion and of a long one. Yue et al. 2025, *VAPO: efficient and
    reliable reinforcement learning for advanced reasoning tasks*, the length-adaptive GAE.

    Deltas against `decoupled_gae`:

    1. the policy's λ is computed for each completion instead of being a constant.

    Args:
        token_rewards: r; the score is on the last policy token.
        values: V, the critic at collection, in units of reward.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per policy token.
        alpha: α, per token: the fraction of the completion that the trace covers.
        critic_lam: λ_critic, decay of the trace per policy token in R.
        whiten: shift and scale A to mean 0 and standard deviation 1 over all policy tokens of the batch, as in `gae`.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        The paper does not define λ for fewer than 1/α tokens, where 1 - 1/(α·l) is negative; here it is zero, as in
        NeMo-RL.

    >>> rewards, values, mask = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, 0.5]]), jnp.ones((1, 2), bool)
    >>> advantages, returns = length_adaptive_gae(rewards, values, mask, alpha=1.0, whiten=False)
    >>> print(advantages, returns)  # λ = 1/2
    [[0.25 0.5 ]] [[1. 1.]]
    """
    values = masked(values, mask)
    lengths = jnp.sum(mask, axis=-1, dtype=values.dtype)
    advantages = gae_trace(token_rewards, values, mask, gamma, 1.0 - 1.0 / jnp.maximum(alpha * lengths, 1.0))
    returns = masked(gae_trace(token_rewards, values, mask, gamma, critic_lam) + values, mask)
    return (whitened(advantages, mask) if whiten else advantages), returns
