"""Discounted sums over the rest of a completion, starting at each policy token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays.masks import masked

Row = Float[Array, "seq"]
Flag = Bool[Array, "seq"]


def gae_trace(
    rewards: Float[Array, "seq token"],
    values: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    gamma: float,
    lam: float | Row,
    ends: Bool[Array, "seq token"] | None = None,
) -> Float[Array, "seq token"]:
    """A_t = r_t + γ·V_{t+1} - V_t + γ·λ·A_{t+1}, with V = A = 0 after the last policy token and after each of `ends`.

    t + 1 is the next policy token: V and A are carried unchanged across tokens outside the mask. The result is zero
    outside the mask. Schulman et al. 2016, *High-dimensional continuous control using generalized advantage
    estimation*, equation 16.

    Args:
        rewards: r.
        values: V, of the state before each token.
        mask: policy tokens.
        gamma: γ, the discount per policy token.
        lam: λ, one for all completions or one for each.
        ends: tokens after which nothing is carried on, such as the last token of each turn.

    >>> rewards, values = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[0.5, 9.0, 0.5]])
    >>> gae_trace(rewards, values, jnp.array([[True, False, True]]), gamma=0.5, lam=1.0)
    Array([[0. , 0. , 0.5]], dtype=float32)
    """
    rewards, values = masked(rewards, mask), masked(values, mask)
    ends = jnp.zeros_like(mask) if ends is None else ends

    def step(after: tuple[Row, Row], now: tuple[Row, Row, Flag, Flag]) -> tuple[tuple[Row, Row], Row]:
        reward, value, policy, end = now
        next_value, next_advantage = (jnp.where(end, 0.0, x) for x in after)
        advantage = reward + gamma * next_value - value + gamma * lam * next_advantage
        carried = (jnp.where(policy, value, next_value), jnp.where(policy, advantage, next_advantage))
        return carried, advantage

    nothing = jnp.zeros_like(values, shape=values.shape[:1])
    _, by_time = jax.lax.scan(step, (nothing, nothing), (rewards.T, values.T, mask.T, ends.T), reverse=True)
    return masked(by_time.T, mask)


def returns_to_go(
    rewards: Float[Array, "seq token"], mask: Bool[Array, "seq token"], gamma: float
) -> Float[Array, "seq token"]:
    """G_t = r_t + γ·G_{t+1} over the policy tokens; zero elsewhere.

    >>> returns_to_go(jnp.array([[0.0, 7.0, 1.0]]), jnp.array([[True, False, True]]), gamma=0.5)
    Array([[0.5, 0. , 1. ]], dtype=float32)
    """
    rewards = masked(rewards, mask)
    return gae_trace(rewards, jnp.zeros_like(rewards), mask, gamma, 1.0)
