"""Advantage `reinforce_plus_plus`: the discounted return, whitened over the batch."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import returns_to_go, whiten


def reinforce_plus_plus(
    token_rewards: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
) -> Float[Array, "seq token"]:
    """The return from each token on, whitened over the policy tokens of the batch.

        G_t = r_t + γ·G_{t+1},   G = 0 after the last policy token
        A = (G - mean(G)) / √(var(G) + 1e-8)

    where t + 1 is the next policy token, and mean and var (Bessel's correction) are over all policy tokens of the
    batch. Hu 2025, *REINFORCE++: an efficient RLHF algorithm with robustness to both prompt and reward models*. In
    the paper the rewards include a KL penalty at every token: `train.kl_in = 'reward'` with a `train.kl_coef`.

    Deltas against `reinforce`:

    1. whitening over the batch, which replaces a baseline: one completion per prompt is enough.

    Args:
        token_rewards: r; the score is on the last policy token.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per policy token.

    Returns:
        A, in standard deviations, zero outside the mask and in a batch of equal returns.

    Departures:
        verl raises an error on a batch of one policy token, which gets zero here.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> found = reinforce_plus_plus(jnp.array([[1.0], [3.0]]), jnp.ones((2, 1), bool))
    >>> np.asarray(found, float).round(3).tolist()
    [[-0.707], [0.707]]
    """
    return whiten(returns_to_go(token_rewards, mask, gamma), mask)
