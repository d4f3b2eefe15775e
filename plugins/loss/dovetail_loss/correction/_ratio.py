"""The importance ratio between trainer and sampler, per token or per completion, and its normalisation."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import bounded, mean_over_tokens

Level = Literal["token", "sequence", "geometric"]
"""Which ratio: the token's own, the product over the completion, or the geometric mean over the completion."""

SMALLEST_MEAN = 1e-8
"""A batch whose mean weight is at most this is not normalised, so that noise is not scaled up to a mean of one."""


def ratio(
    log_ratios: Float[Array, "seq token"], mask: Bool[Array, "seq token"], level: Level
) -> Float[Array, "seq token"]:
    """Return π/μ at the given level, for each token; zero outside the mask.

        token:     r_it = exp(x_it)
        sequence:  r_it = exp(∑_t x_it)
        geometric: r_it = exp((1/|y_i|)·∑_t x_it)

    Each exponent is bounded to ±20.

    Args:
        log_ratios: x = log π - log μ, zero outside the mask.
        mask: policy tokens.
        level: `token`, `sequence` or `geometric`.

    >>> x = jnp.log(jnp.array([[0.5, 0.5]]))
    >>> ratio(x, jnp.ones((1, 2), bool), "sequence")
    Array([[0.25, 0.25]], dtype=float32)
    """
    exponent = {
        "token": lambda: log_ratios,
        "sequence": lambda: jnp.sum(log_ratios, axis=-1, keepdims=True),
        "geometric": lambda: mean_over_tokens(log_ratios, mask),
    }[level]()
    return jnp.where(mask, jnp.exp(bounded(exponent)), 0.0)


def normalized(
    weights: Float[Array, "seq token"], counted: Bool[Array, "seq token"], level: Level
) -> Float[Array, "seq token"]:
    """Divide weights by their mean, which is over tokens at level `token` and otherwise over completions.

    A completion's weight is the mean over its tokens, so that a long one counts once. If the mean is zero, or close to
    it, the weights are returned unchanged.

    Args:
        weights: w, zero outside the mask.
        counted: the tokens that the mean is over; completions without any are not counted.
        level: the level at which the weights were computed.

    >>> normalized(jnp.array([[1.0, 1.0], [3.0, 0.0]]), jnp.array([[True, True], [True, False]]), "sequence")
    Array([[0.5, 0.5],
           [1.5, 0. ]], dtype=float32)
    """
    if level == "token":
        values, where = weights, counted
    else:
        values, where = mean_over_tokens(weights, counted), jnp.any(counted, axis=-1, keepdims=True)
    count = jnp.sum(where, dtype=weights.dtype)
    mean = jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(count, 1.0)
    return weights / jnp.where(mean > SMALLEST_MEAN, mean, 1.0)
