"""Whitening over the policy tokens of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays.masks import masked

VARIANCE_FLOOR = 1e-8
"""Added to the variance under the square root, so that a constant batch gives zero."""


def whiten(x: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Shift and scale policy tokens to mean 0 and standard deviation 1 over the batch; zero outside the mask.

        (x - mean(x)) / √(var(x) + 1e-8),  var with Bessel's correction

    A batch with a single policy token, or whose policy tokens are all equal, becomes zero.

    >>> whiten(jnp.array([[1.0, 3.0, jnp.nan]]), jnp.array([[True, True, False]])).round(3)
    Array([[-0.707,  0.707,  0.   ]], dtype=float32)
    """
    x = masked(x, mask)
    # In floating point the mean of equal numbers need not equal them; the mean of their distances from the lowest does.
    x = masked(x - jnp.min(jnp.where(mask, x, jnp.inf)), mask)
    count = jnp.sum(mask, dtype=x.dtype)
    mean = jnp.sum(x) / jnp.maximum(count, 1.0)
    deviations = masked(x - mean, mask)
    variance = jnp.sum(jnp.square(deviations)) / jnp.maximum(count - 1.0, 1.0)
    return deviations * jax.lax.rsqrt(variance + VARIANCE_FLOOR)
