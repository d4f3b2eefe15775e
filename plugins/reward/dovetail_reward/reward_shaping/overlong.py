"""Reward shaping `overlong`: a penalty that grows over the last tokens before the limit."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import masked
from dovetail_reward.reward_shaping._last import at_last


def overlong(
    token_rewards: Float[Array, "seq token"],
    lengths: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    max_tokens: Annotated[int, Ge(1)],
    buffer: Annotated[int, Ge(0)],
    penalty: Annotated[float, Ge(0)] = 1.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Penalise a long completion at its last policy token, in proportion to how far it extends into the buffer.

        R_length(y) = -c·min( max( |y| - (L_max - L_buffer), 0 ) / L_buffer, 1 )

    Yu et al. 2025, *DAPO*, equation 13, where c is 1: zero up to L_max - L_buffer tokens, then linearly down to -c at
    L_max.

    Args:
        token_rewards: rewards per token, to which it is added; cast to float32, unless float64.
        lengths: |y|, policy tokens of each completion.
        mask: policy tokens; a completion without any gets nothing.
        max_tokens: L_max, in tokens; normally the value of `sampling.max_tokens`.
        buffer: L_buffer, in tokens; in the paper 4,096, with L_max = 20,480.
        penalty: c, in units of reward.

    Returns:
        The rewards, zero outside the mask, and per completion `penalty`, R_length ≤ 0, and `overlong`, 1 where it is
        not zero.

    Departures:
        The penalty is never lower than -c, however long the completion; verl's keeps growing. With a buffer of zero
        tokens, only completions longer than L_max are penalised.

    >>> mask = jnp.arange(10)[None] < jnp.array([6, 9, 10])[:, None]
    >>> rewards, metrics = overlong(jnp.zeros((3, 10)), mask.sum(1), mask, max_tokens=10, buffer=4)
    >>> metrics["penalty"].tolist(), rewards[1, 7:].tolist()
    ([0.0, -0.75, -1.0], [0.0, -0.75, 0.0])
    """
    rewards = masked(token_rewards, mask)
    over = lengths - (max_tokens - buffer)
    shares = jnp.minimum(over.astype(rewards.dtype) / max(buffer, 1), 1.0)
    penalties = jnp.where((over > 0) & jnp.any(mask, axis=-1), -penalty * shares, 0.0)
    metrics = {"penalty": penalties, "overlong": (penalties < 0).astype(rewards.dtype)}
    return rewards + at_last(penalties, mask), metrics
