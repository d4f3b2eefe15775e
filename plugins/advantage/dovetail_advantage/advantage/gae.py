"""Advantage `gae`: generalised advantage estimation with a critic."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import gae_trace, masked
from dovetail.arrays import whiten as whitened


def gae(
    token_rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
    lam: Annotated[float, Interval(ge=0, le=1)] = 0.95,
    whiten: bool = True,
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Generalised advantage estimation: discounted sums of the critic's one-step errors, and the critic's targets.

        δ_t = r_t + γ·V_{t+1} - V_t
        A_t = δ_t + γ·λ·A_{t+1},   V = A = 0 after the last policy token
        R_t = A_t + V_t

    where t + 1 is the *next policy token*: the value and the trace are carried unchanged across tool and environment
    tokens in between. Schulman et al. 2016, *High-dimensional continuous control using generalized advantage
    estimation*, equation 16. The extremes are λ = 0, the one-step error (equation 17), and λ = 1, the return minus the
    value (equation 18).

    Args:
        token_rewards: r; the score is on the last policy token.
        values: V, the critic at collection, in units of reward.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per policy token.
        lam: λ, decay of the trace per policy token.
        whiten: shift and scale A to mean 0 and standard deviation 1 over all policy tokens of the batch (Bessel's
            correction, 1e-8 added to the variance), as PPO implementations do. R is computed from A before it is
            whitened.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        In verl and tunix both results are non-zero outside the mask, and a batch of one policy token raises an error or
        gives NaN; here it is whitened to zero. tunix adds 1e-8 to the number of tokens in the means for whitening.
        verl's default λ is 1.

    >>> import jax.numpy as jnp
    >>> rewards, values = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[0.5, 9.0, 0.5]])
    >>> mask = jnp.array([[True, False, True]])
    >>> advantages, returns = gae(rewards, values, mask, gamma=0.5, lam=1.0, whiten=False)
    >>> print(advantages, returns)
    [[0.  0.  0.5]] [[0.5 0.  1. ]]
    """
    advantages = gae_trace(token_rewards, values, mask, gamma, lam)
    returns = masked(advantages + masked(values, mask), mask)
    return (whitened(advantages, mask) if whiten else advantages), returns
