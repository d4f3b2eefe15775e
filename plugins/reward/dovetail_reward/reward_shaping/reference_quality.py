"""Reward shaping `reference_quality`: blend a completion's likelihood under the reference into the reward."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked, per_token
from dovetail_reward.reward_shaping._last import at_last


def reference_quality(
    token_rewards: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    schedule_weight: Float[Array, ""],
    *,
    on: Literal["tokens", "last"] = "tokens",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Blend the reference model's mean likelihood of a completion into its rewards.

        q_i   = exp( (1/|y_i|)·∑_t log π_ref(y_it) )
        r'_it = (1-w)·r_it + w·q_i at policy tokens

    q, the geometric mean of the tokens' probabilities, is the reciprocal of the completion's perplexity, and between 0
    and 1. w is the value of `train.schedule` at this step. Known from a fork of verl; no paper describes it.

    Args:
        token_rewards: r, in units of reward.
        ref_logps: log π_ref, in nats, at the sampling temperature.
        mask: policy tokens.
        schedule_weight: w, between 0 and 1.
        on: whether q is added to every policy token ("tokens"), as above, or only to the last one ("last"). Estimators
            that read whole scores (grpo, rloo) see the sum over tokens: |y|·q with `tokens`, which rewards length, and
            q with `last`.

    Returns:
        The rewards, zero outside the mask, and `quality`, q of each completion; zero without policy tokens.

    >>> rewards, logps = jnp.array([[0.0, 1.0]]), jnp.log(jnp.array([[0.25, 1.0]]))
    >>> reference_quality(rewards, logps, jnp.ones((1, 2), bool), jnp.float32(0.5))[0].tolist()
    [[0.25, 0.75]]
    """
    rewards = masked(token_rewards, mask)
    weight = schedule_weight.astype(rewards.dtype)
    logps = masked(ref_logps, mask).astype(rewards.dtype)
    lengths = jnp.sum(mask, axis=-1, dtype=rewards.dtype)
    quality = jnp.where(lengths > 0, jnp.exp(jnp.sum(logps, axis=-1) / jnp.maximum(lengths, 1.0)), 0.0)
    spread = per_token if on == "tokens" else at_last
    return (1.0 - weight) * rewards + spread(weight * quality, mask), {"quality": quality}
