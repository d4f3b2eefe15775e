"""Policy loss `opsm`: PPO without the failed completions that the policy has left behind."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_loss._arrays import masked
from dovetail_loss._ratio import indicator, log_ratio, mean_over_tokens
from dovetail_loss.ppo import ppo


def opsm(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    threshold: float = 0.5,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    clip_c: float | None = None,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Off-policy sequence masking: the loss of `ppo`, and zero on completions far from the sampler with A < 0.

        D_i  = (1/|y_i|)·∑_t (log μ - log π)
        L_it = 0 where A_it < 0 and D_i > δ, else max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)),  r = π / π_old

    with μ the policy as the sampler reports it. DeepSeek-AI 2025, *DeepSeek-V3.2* (arXiv:2512.02556). D counts
    staleness and the mismatch between sampler and trainer alike.

    Delta against `ppo`:

    1. the mask: the policy learns from mistakes that it might still make.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        threshold: δ, in nats per token. The paper gives no number; 0.5 is where TRL's guide starts.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.
        clip_c: as in `ppo`.

    Returns:
        The loss per token, the metrics of `ppo`, and `dropped_fraction`: tokens of masked completions.

    >>> new, sampled, true = jnp.array([[-3.0, -2.0]]), jnp.array([[-1.0, -1.0]]), jnp.ones((1, 2), bool)
    >>> loss, metrics = opsm(new, new, sampled, jnp.array([[-1.0, 1.0]]), true)
    >>> metrics["dropped_fraction"]
    Array([[1., 0.]], dtype=float32)
    """
    loss, metrics = ppo(
        logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high, clip_c=clip_c
    )
    distance = -jax.lax.stop_gradient(mean_over_tokens(log_ratio(logps, rollout_logps, mask), mask))
    dropped = mask & (masked(advantages, mask) < 0) & (distance > threshold)
    return jnp.where(dropped, 0.0, loss), metrics | {"dropped_fraction": indicator(dropped, loss)}
