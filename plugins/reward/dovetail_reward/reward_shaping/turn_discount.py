"""Reward shaping `turn_discount`: discount rewards by the number of turns before them."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import masked


def turn_discount(
    token_rewards: Float[Array, "seq token"],
    turns: Int[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    discount: Annotated[float, Interval(ge=0, le=1)] = 0.9,
) -> Float[Array, "seq token"]:
    """Discount each reward by the number of turns before it.

        r'_it = d^k·r_it,  k the turn of token t, counted from 0

    A score, which is on the last policy token, becomes d^(T-1)·s in an episode of T turns: AReaL's `turn_discount`. The
    sum of the rewards is then the discounted return of the episode from its beginning. Note that a negative score moves
    towards zero with more turns.

    Args:
        token_rewards: r; cast to float32, unless float64.
        turns: which turn a token belongs to.
        mask: policy tokens.
        discount: d, per turn; 0.9 in AReaL's documentation, and 1 changes nothing.

    Returns:
        The rewards, zero outside the mask.

    >>> rewards, turns = jnp.array([[0.0, 1.0, 8.0]]), jnp.array([[0, 1, 3]])
    >>> turn_discount(rewards, turns, jnp.ones((1, 3), bool), discount=0.5).tolist()
    [[0.0, 0.5, 1.0]]
    """
    rewards = masked(token_rewards, mask)
    before = jnp.where(mask, turns, 0).astype(rewards.dtype)
    return rewards * jnp.power(jnp.asarray(discount, rewards.dtype), before)
