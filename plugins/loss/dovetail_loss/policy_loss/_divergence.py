"""The trust region of DPPO: a token is dropped where its probability, not its ratio, has moved too far."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, indicator, masked
from dovetail_loss.policy_loss._clipped import ratio_metrics
from dovetail_loss.policy_loss._score import weighted_score


def probability(logps: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Return π(a|s), a constant for the gradient, never above one; one outside the mask.

    >>> probability(jnp.log(jnp.array([[0.25]])), jnp.array([[True]]))
    Array([[0.25]], dtype=float32)
    """
    return jax.lax.stop_gradient(jnp.exp(jnp.minimum(masked(logps, mask), 0.0)))


def masked_score(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    too_high: Bool[Array, "seq token"],
    too_low: Bool[Array, "seq token"],
    max_ratio: float,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Return -sg[min(r, c)]·A·log π, zero on tokens that A pushes further out of the trust region, and metrics.

    Args:
        logps: log π.
        old_logps: log π_old.
        advantages: A.
        mask: policy tokens.
        too_high: true where the probability has risen beyond the trust region; dropped where A > 0.
        too_low: true where it has fallen beyond the trust region; dropped where A ≤ 0.
        max_ratio: c.

    >>> one, true = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
    >>> masked_score(-one, -one, one, true, too_high=true, too_low=~true, max_ratio=20.0)[0]
    Array([[0.]], dtype=float32)
    """
    log_ratio, ratio = importance_ratio(logps, old_logps, mask)
    rising = masked(advantages, mask) > 0
    dropped = mask & jnp.where(rising, too_high, too_low)
    weights = jnp.where(dropped, 0.0, jnp.minimum(ratio, max_ratio))
    loss = weighted_score(weights, logps, advantages, mask)
    metrics = {
        "clip_fraction": dropped,
        "clip_fraction_high": dropped & rising,
        "clip_fraction_low": dropped & ~rising,
        "truncated_fraction": mask & ~dropped & (ratio > max_ratio),
    }
    found = {name: indicator(where, loss) for name, where in metrics.items()}
    return loss, found | ratio_metrics(log_ratio, ratio, mask)
