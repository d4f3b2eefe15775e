"""Metrics of the mismatch between sampler and trainer, and of the effect of corrections.

Although both have the same weights, their log-probabilities differ because of different kernels, precision or routing
of experts, or because the sampler's weights are older. Let μ be the sampler's reported policy, π the trainer's, and
x = log π - log μ on a token sampled from μ. All metrics are over the policy tokens as sampled: over the tokens that a
correction leaves, a mismatch would look harmless however many were rejected.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.step.parts import Peak, Sums, sums

LOG_RATIO_BOUND = 20.0
"""Bound of a log-ratio in an exponent, so that a single extreme token cannot make a metric infinite."""


def mismatch(
    logps: Float[Array, "seq token"], rollout_logps: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Sums:
    """Measure the gap between log π and log μ.

    Returns:
        `abs_mean` and `abs_max` of |x|; `kl_k1`, mean(-x), and `kl_k3`, mean(eˣ - 1 - x), both estimates of KL(μ‖π);
        `perplexity_ratio`, the ratio exp(mean_t(-x)) of a completion's perplexities under π and μ, averaged over
        completions; `ratio_mean`, mean(eˣ); `chi_squared`, mean(e²ˣ) - 1, an estimate of χ²(π‖μ) per token; and
        `chi_squared_sequence`, the same for ∑x of a completion, averaged over completions. Exponents are clipped to
        ±20.

    >>> logps, rollout_logps = jnp.log(jnp.array([[0.5, 0.9]])), jnp.log(jnp.array([[0.25, 0.1]]))
    >>> found = mismatch(logps, rollout_logps, jnp.array([[True, False]]))
    >>> [round(float(found[f"mismatch/{name}"][0]), 4) for name in ("abs_mean", "chi_squared")]
    [0.6931, 3.0]
    """
    x = jnp.where(mask, logps - rollout_logps, 0.0).astype(jnp.float32)
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, dtype=jnp.float32), 1.0)
    measured = {
        "abs_mean": jnp.abs(x),
        "kl_k1": -x,
        "kl_k3": jnp.expm1(_bounded(x)) - _bounded(x),
        "perplexity_ratio": jnp.exp(_bounded(-jnp.sum(x, axis=-1) / lengths)),
        "ratio_mean": jnp.exp(_bounded(x)),
        "chi_squared": jnp.expm1(2.0 * _bounded(x)),
        "chi_squared_sequence": jnp.expm1(2.0 * _bounded(jnp.sum(x, axis=-1))),
    }
    return sums("mismatch", measured, mask) | {"mismatch/abs_max": Peak(jnp.max(jnp.abs(x)))}


def effective_sample_size(metrics: dict[str, float]) -> float:
    """Return (∑r)² / (n·∑r²) of the ratios r = eˣ of n tokens, from the means of `mismatch`.

    This is the share of the tokens that would give the same variance with equal weights.

    >>> effective_sample_size({"mismatch/ratio_mean": 1.0, "mismatch/chi_squared": 0.25})
    0.8
    """
    return metrics["mismatch/ratio_mean"] ** 2 / (1.0 + metrics["mismatch/chi_squared"])


def corrected(weights: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Sums:
    """Measure the total effect of a step's corrections.

    Args:
        weights: w, the product of the corrections' weights; zero if any of them rejects the token.
        mask: policy tokens as sampled.

    Returns:
        `weight_mean`, mean of w; `effective_sample_size`, (∑w)² / (n·∑w²); `rejected_tokens`, the share of tokens with
        w = 0; and `rejected_completions`, the share of completions in which all tokens have w = 0.

    >>> found = corrected(jnp.array([[1.0, 0.5, 0.0]]), jnp.array([[True, True, False]]))
    >>> found["correction/effective_sample_size"][0]
    Array(0.9, dtype=float32)
    """
    weights = jnp.where(mask, weights, 0.0).astype(jnp.float32)
    total, square = jnp.sum(weights), jnp.sum(weights * weights)
    zero = mask & (weights == 0)
    measured = {
        "weight_mean": weights,
        "effective_sample_size": total * total / jnp.where(square > 0, jnp.sum(mask, dtype=jnp.float32) * square, 1.0),
        "rejected_tokens": zero,
        "rejected_completions": jnp.all(zero | ~mask, axis=-1),
    }
    return sums("correction", measured, mask)


def _bounded(x: Array) -> Array:
    return jnp.clip(x, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
