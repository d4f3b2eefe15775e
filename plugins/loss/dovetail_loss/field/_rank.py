"""Ranking the policy tokens of a mini-batch."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def first(
    scores: Float[Array, "seq token"], eligible: Bool[Array, "seq token"], count: Float[Array, ""]
) -> Bool[Array, "seq token"]:
    """Select the `count` eligible tokens with the lowest scores, or all if there are fewer.

    Args:
        scores: finite for eligible tokens.
        eligible: tokens that may be selected.
        count: how many to select, a whole number.

    >>> first(jnp.array([[3.0, 1.0, 2.0]]), jnp.array([[True, True, True]]), jnp.float32(2))
    Array([[False,  True,  True]], dtype=bool)
    """
    order = jnp.argsort(jnp.where(eligible, scores, jnp.inf).ravel())
    rank = jnp.argsort(order).reshape(scores.shape)
    return eligible & (rank.astype(count.dtype) < count)


def number_of(mask: Bool[Array, "seq token"], fraction: float) -> Float[Array, ""]:
    """Return ⌊fraction·N⌋ for the mask's N tokens, but at least one if the fraction is positive.

    >>> [number_of(jnp.ones((1, 30), bool), fraction).item() for fraction in (0.1, 1e-4, 0.0)]
    [3.0, 1.0, 0.0]
    """
    # The usual fraction, 2e-4, would round down to zero tokens in a small mini-batch; zero switches the selection off.
    return jnp.where(fraction > 0, jnp.maximum(jnp.floor(fraction * jnp.sum(mask, dtype=float)), 1.0), 0.0)


def covariance(
    logps: Float[Array, "seq token"], advantages: Float[Array, "seq token"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq token"]:
    """Return each token's contribution to the covariance of log π and A over the mini-batch.

        c = (A - mean A)·(log π - mean log π)

    Zero outside the mask.

    >>> covariance(jnp.array([[-1.0, -3.0]]), jnp.array([[1.0, -1.0]]), jnp.array([[True, True]]))
    Array([[1., 1.]], dtype=float32)
    """

    def centred(x: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
        x = masked(x, mask)
        mean = jnp.sum(x) / jnp.maximum(jnp.sum(mask, dtype=x.dtype), 1.0)
        return jnp.where(mask, x - mean, 0.0)

    return centred(advantages) * centred(logps)
