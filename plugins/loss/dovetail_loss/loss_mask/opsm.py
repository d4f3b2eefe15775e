"""Loss mask `opsm`: exclude failed completions that are far off-policy."""

from __future__ import annotations

from typing import Annotated

import jax
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio, masked, mean_over_tokens


def opsm(
    logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    threshold: Annotated[float, Ge(0)] = 0.5,
) -> Bool[Array, "seq token"]:
    """Off-policy sequence masking: tokens with A < 0 are dropped in completions that are far from the sampler.

        D_i  = (1/|y_i|)·∑_t (log μ - log π)
        dropped where A_it < 0 and D_i > δ

    with π the policy being trained and μ the one that sampled, as the sampler reports it: D includes both staleness and
    the mismatch between sampler and trainer. The policy is then trained only on mistakes that it might still make.
    DeepSeek-AI 2025, *DeepSeek-V3.2* (arXiv:2512.02556).

    Args:
        logps: log π, in nats; a constant for the gradient.
        rollout_logps: log μ, in nats.
        advantages: A.
        mask: policy tokens.
        threshold: δ, in nats per token. The paper gives no value; TRL's guide suggests starting with 0.5.

    Returns:
        False where a token is dropped; it still counts in the aggregation's mean.

    >>> import jax.numpy as jnp
    >>> new, sampled, true = jnp.array([[-3.0, -2.0]]), jnp.array([[-1.0, -1.0]]), jnp.ones((1, 2), bool)
    >>> opsm(new, sampled, jnp.array([[-1.0, 1.0]]), true).tolist()
    [[False, True]]
    """
    distance = -jax.lax.stop_gradient(mean_over_tokens(log_ratio(logps, rollout_logps, mask), mask))
    return mask & ~((masked(advantages, mask) < 0) & (distance > threshold))
