"""Reward shaping `representation_alignment`: a bonus for completions whose representation is close to the answer's."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked
from dovetail_reward.reward_shaping._last import at_last


def representation_alignment(
    token_rewards: Float[Array, "seq token"],
    entropy: Float[Array, "seq token"],
    mean_hidden_states: Float[Array, "seq width"],
    answer_mean_hidden_states: Float[Array, "seq width"],
    mask: Bool[Array, "seq token"],
    schedule_weight: Float[Array, ""],
    *,
    entropy_threshold: Annotated[float, Ge(0)] = 1.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, ""] | Float[Array, "seq"]]]:
    """While the policy's entropy is high, reward the similarity of the completion's hidden states to the answer's.

        c_i = h̄(y_i)·h̄(y*_i) / (|h̄(y_i)|·|h̄(y*_i)|)
        r'_it = r_it + w·c_i at the last policy token where H̄ > H₀,  else r_it

    with y* the task's answer to the same prompt (`train.answer_column`), h̄ the mean of the hidden states after the
    final norm, H̄ the mean entropy over the batch's policy tokens, and w the value of `train.schedule` at this step.
    Known from a fork of verl; no paper describes it.

    Args:
        token_rewards: r, in units of reward.
        entropy: H of the policy at collection, in nats.
        mean_hidden_states: h̄(y) by the policy at collection.
        answer_mean_hidden_states: h̄(y*) by the same policy. The answer is cut to `sampling.max_tokens`.
        mask: policy tokens.
        schedule_weight: w, in units of reward.
        entropy_threshold: H₀, in nats per token.

    Returns:
        The rewards, zero outside the mask; and `cosine`, c of each completion, and `active`, 1 where H̄ > H₀. A
        completion without policy tokens, or without an answer, gets no bonus.

    >>> one, true = jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> same = jnp.array([[0.6, 0.8]])
    >>> representation_alignment(0 * one, 2 * one, 5 * same, same, true, jnp.float32(0.25))[0].tolist()
    [[0.0, 0.25]]
    """
    rewards = masked(token_rewards, mask)
    count = jnp.maximum(jnp.sum(mask, dtype=rewards.dtype), 1.0)
    active = jnp.sum(masked(entropy, mask)).astype(rewards.dtype) / count > entropy_threshold
    cosine = _cosine(mean_hidden_states.astype(rewards.dtype), answer_mean_hidden_states.astype(rewards.dtype))
    bonus = schedule_weight.astype(rewards.dtype) * jnp.where(active, cosine, 0.0)
    metrics = {"cosine": cosine, "active": active.astype(rewards.dtype)}
    return rewards + at_last(bonus, mask), metrics


def _cosine(x: Float[Array, "seq width"], y: Float[Array, "seq width"]) -> Float[Array, "seq"]:
    norms = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
    return jnp.where(norms > 0, jnp.sum(x * y, axis=-1) / jnp.where(norms > 0, norms, 1.0), 0.0)
