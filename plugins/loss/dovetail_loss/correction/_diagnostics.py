"""What every correction returns: weights, the mask to keep, and how far sampler and trainer are apart."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_loss._ratio import bounded, mean_over_tokens

Corrected = tuple[tuple[Float[Array, "seq token"], Bool[Array, "seq token"]], dict[str, Float[Array, ""]]]
"""`((is_weights, kept mask), metrics)`."""


def corrected(
    log_ratios: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    weights: Float[Array, "seq token"],
    kept: Bool[Array, "seq token"],
    *,
    count_rejected: bool = False,
) -> Corrected:
    """Return a correction's result.

    Args:
        log_ratios: x = log π - log μ, zero outside the mask.
        mask: policy tokens as sampled.
        weights: is replaced by zero outside `kept`.
        kept: tokens that are not rejected.
        count_rejected: rejected tokens have weight zero and stay in the mask.

    >>> x, mask = jnp.zeros((1, 2)), jnp.ones((1, 2), bool)
    >>> (weights, kept), metrics = corrected(x, mask, jnp.ones((1, 2)), jnp.array([[True, False]]))
    >>> weights, kept, metrics["rejected_tokens"]
    (Array([[1., 0.]], dtype=float32), Array([[ True, False]], dtype=bool), Array(0.5, dtype=float32))
    """
    weights = jnp.where(kept, weights, 0.0)
    return (weights, mask if count_rejected else kept), diagnostics(log_ratios, mask, weights)


def diagnostics(
    log_ratios: Float[Array, "seq token"], mask: Bool[Array, "seq token"], weights: Float[Array, "seq token"]
) -> dict[str, Float[Array, ""]]:
    """Measure the mismatch, over all policy tokens as sampled, the rejected ones included.

    Scalars rather than values per token: the engine reduces those over the mask that the correction leaves, and
    a mismatch measured on what is left would look harmless however much was thrown away.

    Args:
        log_ratios: x = log π - log μ, zero outside the mask.
        mask: policy tokens as sampled.
        weights: w, zero where rejected.

    Returns:
        `kl_k1` = mean(-x) and `kl_k3` = mean(eˣ - 1 - x), both estimates of KL(μ‖π) in nats per token;
        `perplexity_ratio`, the perplexity of a completion under π over that under μ, exp(mean_t(-x)), mean over
        completions; `max_abs_log_ratio`, max |x|; `weight_mean`, mean of w; `effective_sample_size`,
        (∑w)² / (n·∑w²), the share of the n tokens that equal weights would need for the same variance;
        `rejected_tokens` and `rejected_completions`, the share of tokens with w = 0, and of completions with no other.
        All are zero for a batch without policy tokens.

    Departures:
        Exponents are bounded to ±20, where verl's `k3_kl` can overflow. A row without policy tokens is not counted,
        where verl's `ppl_ratio` counts it with a ratio of one.

    >>> w = jnp.array([[1.0, 0.5, 0.0]])
    >>> metrics = diagnostics(jnp.log(jnp.array([[1.0, 0.5, 1.0]])), jnp.array([[True, True, False]]), w)
    >>> metrics["max_abs_log_ratio"].round(4), metrics["effective_sample_size"]
    (Array(0.6931, dtype=float32), Array(0.9, dtype=float32))
    """
    x = log_ratios
    rows = jnp.any(mask, axis=-1, keepdims=True)
    zero = mask & (weights == 0)
    total, square = jnp.sum(weights), jnp.sum(weights * weights)
    count = jnp.sum(mask, dtype=x.dtype)
    return {
        "kl_k1": _mean(-x, mask),
        "kl_k3": _mean(jnp.expm1(bounded(x)) - bounded(x), mask),
        "perplexity_ratio": _mean(jnp.exp(bounded(mean_over_tokens(-x, mask))), rows),
        "max_abs_log_ratio": jnp.max(jnp.abs(x)),
        "weight_mean": _mean(weights, mask),
        "effective_sample_size": total * total / jnp.where(square > 0, count * square, 1.0),
        "rejected_tokens": _mean(zero.astype(x.dtype), mask),
        "rejected_completions": _mean(jnp.all(zero | ~mask, axis=-1, keepdims=True).astype(x.dtype), rows),
    }


def _mean(values: Float[Array, "seq #token"], where: Bool[Array, "seq #token"]) -> Float[Array, ""]:
    """Mean over the true positions; zero where there are none."""
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where, dtype=values.dtype), 1.0)
