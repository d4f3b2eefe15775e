"""The importance ratio of the policy losses, per token or per completion, and the score function it weighs."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_loss._arrays import LOG_RATIO_BOUND, clip, masked

LOG_SEQUENCE_RATIO_BOUND = 10.0
"""Upper bound of the log of a completion's mean ratio; a mean over tokens, it moves less than a token's."""

Level = Literal["token", "sequence"]
"""Whether each token has its own ratio, or all tokens that of their completion."""


def log_ratio(
    logps: Float[Array, "seq token"], old_logps: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Return log π - log π_old in full precision, zero outside the mask, unbounded.

    >>> log_ratio(jnp.array([[-1.0, jnp.nan]]), jnp.array([[-1.5, 0.0]]), jnp.array([[True, False]]))
    Array([[0.5, 0. ]], dtype=float32)
    """
    return masked(logps, mask) - masked(old_logps, mask)


def bounded(log_ratios: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Bound log-ratios to ±20, with gradient zero beyond, for an exponent.

    >>> bounded(jnp.array([[-30.0, 0.5]]))
    Array([[-20. ,   0.5]], dtype=float32)
    """
    return clip(log_ratios, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def mean_over_tokens(values: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq 1"]:
    """Mean over the policy tokens of each completion; zero where there are none.

    >>> mean_over_tokens(jnp.array([[1.0, 3.0, 0.0]]), jnp.array([[True, True, False]]))
    Array([[2.]], dtype=float32)
    """
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1, keepdims=True) / jnp.maximum(lengths, 1.0)


def importance_ratio(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Return the log-ratio of each token and the ratio at the level asked for.

        token:     r_it = exp(x_it),  x_it = log π - log π_old, bounded to ±20
        sequence:  s_it = exp(sg[(1/|y_i|)·∑_t x_it] + log π - sg[log π]), bounded from above by e¹⁰

    with sg the stop-gradient: s has the value of the completion's geometric mean, and the gradient of the
    token's own log π (GSPO's token form).

    Args:
        logps: log π.
        old_logps: log π_old.
        mask: policy tokens.
        level: whose ratio.

    >>> x, s = importance_ratio(jnp.array([[0.3, -0.1]]), jnp.zeros((1, 2)), jnp.ones((1, 2), bool), "sequence")
    >>> bool(jnp.allclose(s, jnp.exp(0.1)))
    True
    """
    x = log_ratio(logps, old_logps, mask)
    if level == "token":
        x = bounded(x)
        return x, jnp.exp(x)
    own = masked(logps, mask)
    log_sequence_ratio = jax.lax.stop_gradient(mean_over_tokens(x, mask)) + (own - jax.lax.stop_gradient(own))
    return x, jnp.exp(clip(log_sequence_ratio, -jnp.inf, LOG_SEQUENCE_RATIO_BOUND))


def weighted_score(
    weights: Float[Array, "seq #token"],
    logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
) -> Float[Array, "seq token"]:
    """Return -sg[w]·A·log π: REINFORCE under weights that are constants to the gradient.

    Args:
        weights: w, finite everywhere; one per token, or one per completion as [seq, 1].
        logps: log π.
        advantages: A.
        mask: policy tokens; zero elsewhere.

    >>> weighted_score(jnp.array([[0.5]]), jnp.array([[-2.0]]), jnp.array([[3.0]]), jnp.array([[True]]))
    Array([[3.]], dtype=float32)
    """
    return jnp.where(mask, -jax.lax.stop_gradient(weights) * masked(advantages, mask) * masked(logps, mask), 0.0)


def indicator(where: Bool[Array, "seq token"], like: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Return 1 where true and 0 elsewhere, in the precision of `like`: a fraction, once averaged.

    >>> indicator(jnp.array([[True, False]]), jnp.zeros((1, 2)))
    Array([[1., 0.]], dtype=float32)
    """
    return where.astype(like.dtype)
