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

    where t + 1 is the *next policy token*: over tool and environment tokens in between, the value and the trace are
    carried unchanged. Schulman et al. 2016, *High-dimensional continuous control using generalized advantage
    estimation*, equation 16; its ends are λ = 0, the one-step error (equation 17), and λ = 1, the return less the
    critic (equation 18).

    Args:
        token_rewards: r; the score sits on the last policy token.
        values: V, the critic at collection, in units of reward.
        mask: policy tokens; what the inputs hold elsewhere is not looked at.
        gamma: γ, discount per policy token.
        lam: λ, decay of the trace per policy token.
        whiten: bring A to mean 0 and standard deviation 1 over all policy tokens of the batch (Bessel's correction,
            1e-8 added to the variance), as PPO implementations do. R is computed from A before it is whitened.

    Returns:
        (advantages, returns), both zero outside the mask.

    Departures:
        verl and tunix leave values outside the mask in both results, and fail or give NaN on a batch of one token,
        which whitens to zero here. tunix adds 1e-8 to the number of tokens in the means that it whitens with. verl's
        default λ is 1.

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
