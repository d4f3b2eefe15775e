"""The importance ratio between two policies, per token or per completion."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays.masks import clip, masked, mean_over_tokens

LOG_RATIO_BOUND = 20.0
"""Bound of a token's log-ratio before exponentiation: e^20 ≈ 5e8 is finite, and outside any trust region."""

LOG_SEQUENCE_RATIO_BOUND = 10.0
"""Upper bound of a completion's mean log-ratio, tighter than a token's because a mean over tokens varies less."""

Level = Literal["token", "sequence"]
"""Whether each token has its own ratio, or all tokens of a completion share one."""


def log_ratio(
    logps: Float[Array, "seq token"], old_logps: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Return log π - log π_old in full precision, zero outside the mask, unbounded.

    >>> log_ratio(jnp.array([[-1.0, jnp.nan]]), jnp.array([[-1.5, 0.0]]), jnp.array([[True, False]]))
    Array([[0.5, 0. ]], dtype=float32)
    """
    return masked(logps, mask) - masked(old_logps, mask)


def bounded(log_ratios: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Clip log-ratios to ±20, with gradient zero beyond, so that they can be exponentiated.

    >>> bounded(jnp.array([[-30.0, 0.5]]))
    Array([[-20. ,   0.5]], dtype=float32)
    """
    return clip(log_ratios, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def importance_ratio(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], Float[Array, "seq token"]]:
    """Return the log-ratio of each token, and the ratio at the given level.

        token:     r_it = exp(x_it),  x_it = log π - log π_old, clipped to ±20
        sequence:  s_it = exp(sg[(1/|y_i|)·∑_t x_it] + log π - sg[log π]), at most e¹⁰

    where sg is the stop-gradient: s takes its value from the geometric mean over the completion and its gradient from
    the token's own log π (the token-level form of GSPO).

    Args:
        logps: log π, in nats.
        old_logps: log π_old, in nats.
        mask: policy tokens; the log-ratio is zero elsewhere.
        level: `token` or `sequence`.

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
