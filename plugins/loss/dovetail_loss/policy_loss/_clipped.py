"""The clipped surrogate of PPO, shared by the losses that differ only in their ratio."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def clipped_surrogate(
    ratio: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: float,
    epsilon_high: float,
    clip_c: float | None = None,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Return max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)) per token, and metrics of which tokens were clipped.

    It is computed as -A·b, where b is the ratio bounded from above where A > 0 and from below where A < 0. The dual
    clip also bounds it from above by c where A < 0. Exactly at a bound the gradient is that of the unclipped term.

    Args:
        ratio: r, finite everywhere.
        advantages: A; values outside the mask are ignored.
        mask: policy tokens.
        epsilon_low: ε_low.
        epsilon_high: ε_high.
        clip_c: c, or None for no dual clip.

    >>> ratio, advantages = jnp.array([[1.5, 0.5, 1.0]]), jnp.array([[1.0, -1.0, 1.0]])
    >>> loss, metrics = clipped_surrogate(ratio, advantages, ratio > 0, epsilon_low=0.2, epsilon_high=0.2)
    >>> loss, metrics["clip_fraction"]
    (Array([[-1.2,  0.8, -1. ]], dtype=float32), Array([[1., 1., 0.]], dtype=float32))
    """
    advantages = masked(advantages, mask)
    high = (advantages > 0) & (ratio > 1.0 + epsilon_high)
    low = (advantages < 0) & (ratio < 1.0 - epsilon_low)
    bounded = jnp.where(high, 1.0 + epsilon_high, jnp.where(low, 1.0 - epsilon_low, ratio))
    clipped = {"clip_fraction": high | low, "clip_fraction_high": high, "clip_fraction_low": low}
    if clip_c is not None:
        dual = (advantages < 0) & (bounded > clip_c)
        bounded = jnp.where(dual, clip_c, bounded)
        clipped["dual_clip_fraction"] = dual
    loss = jnp.where(mask, -advantages * bounded, 0.0)
    return loss, {name: where.astype(loss.dtype) for name, where in clipped.items()}


def ratio_metrics(
    log_ratio: Float[Array, "seq token"], ratio: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> dict[str, Float[Array, "seq token"]]:
    """Return the importance ratio, and the k1 estimate of KL(old || new), per token.

    >>> one = jnp.ones((1, 1))
    >>> ratio_metrics(-0.5 * one, one, one > 0)["approx_kl"]
    Array([[0.5]], dtype=float32)
    """
    found = {"ratio": ratio, "approx_kl": -log_ratio}
    return {name: jax.lax.stop_gradient(jnp.where(mask, value, 0.0)) for name, value in found.items()}
