"""Advantage `reinforce`: the discounted return from each token on."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from jaxtyping import Array, Bool, Float

from dovetail.arrays import returns_to_go


def reinforce(
    token_rewards: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0,
) -> Float[Array, "seq token"]:
    """The discounted return from each token on, without a baseline.

        A_t = r_t + γ·A_{t+1},   A = 0 after the last policy token

    where t + 1 is the next policy token. Williams 1992, *Simple statistical gradient-following algorithms for
    connectionist reinforcement learning*, without a baseline, and without the rewards before t, which do not depend on
    token t.

    Args:
        token_rewards: r; the score is on the last policy token.
        mask: policy tokens; values elsewhere are ignored.
        gamma: γ, discount per policy token.

    Returns:
        A, in units of reward, zero outside the mask. With γ = 1 and no rewards other than the score, it is the score at
        every policy token.

    Departures:
        None.

    >>> import jax.numpy as jnp
    >>> reinforce(jnp.array([[0.5, 0.0, 1.0]]), jnp.array([[True, False, True]]), gamma=0.5).tolist()
    [[1.0, 0.0, 1.0]]
    """
    return returns_to_go(token_rewards, mask, gamma)
